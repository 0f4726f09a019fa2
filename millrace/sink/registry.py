"""Which kinds of sinks there are: ours, one line each, and those that other packages register by entry point.

A line names the settings model of a connector, which says everything else about it."""

from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from millrace.credentials.secrets import ForeignSecret
from millrace.model.errors import Invalid, Unavailable
from millrace.model.sinks import DELTA_KIND, SinkTarget
from millrace.model.table import Definition, TableDeclaration
from millrace.sink.connector import Connector
from millrace.sink.context import SinkContext
from millrace.sink.settings import ConnectorSettings

Plan = Callable[[Definition | None, Definition], list[str]]

ENTRY_POINTS = "millrace.sinks"
OURS = {
    "delta-remote": "millrace.sink.delta.settings:DeltaRemoteSettings",
    "postgres": "millrace.sink.postgres.settings:PostgresSettings",
    "cassandra": "millrace.sink.cassandra.settings:CassandraSettings",
    "coredms": "millrace.sink.cassandra.core_settings:CoreSinkSettings",
    "bigquery": "millrace.sink.bigquery.settings:BigQuerySettings",
    "files": "millrace.sink.files.settings:FilesSettings",
    "jdbc": "millrace.sink.jdbc.settings:JdbcSinkSettings",
    "kafka": "millrace.sink.kafka.settings:KafkaSinkSettings",
    "webhook": "millrace.sink.webhook:WebhookSettings",
}


def kinds() -> list[str]:
    return [DELTA_KIND, *_registered()]


@cache
def settings_class(kind: str) -> type[ConnectorSettings]:
    """What the connector declares: its settings, abilities and facts. Needs no driver."""
    point = _registered().get(kind)
    if point is None:
        raise Invalid(f"There is no sink {kind!r}.", remedy=f"Choose one of: {', '.join(kinds())}.", code="no_sink")
    loaded: type[ConnectorSettings] = point.load()
    return loaded


def has_ability(kind: str, ability: str) -> bool:
    """Whether sinks of the kind have it. The platform's own Delta tables are no connector; one that is not installed here
    any more must not keep others waiting: both have none."""
    try:
        return kind != DELTA_KIND and bool(getattr(settings_class(kind).abilities, ability))
    except (Invalid, ImportError):
        return False


def open_connector(target: SinkTarget, context: SinkContext) -> Connector:
    """Refuses settings that are wrong, and hosts and secrets that may not be used."""
    settings = settings_class(target.kind).of(target)
    refuse_strange(target, settings, context)
    opened: Connector = connector_class(target.kind)(settings, context)
    return opened


def refuse_strange(target: SinkTarget, settings: ConnectorSettings, context: SinkContext) -> None:
    """Judges every secret and every host that the settings name."""
    refuse_foreign_secrets(target, settings, context)
    refuse_private(settings, context)


def refuse_private(settings: ConnectorSettings, context: SinkContext) -> None:
    """Judges every host that the settings name; one that cannot be resolved now may be so later."""
    for host, _ in settings.places():
        try:
            context.permitted(host)
        except Unavailable:
            continue


def refuse_foreign_secrets(target: SinkTarget, settings: ConnectorSettings, context: SinkContext) -> None:
    for reference in settings.references():
        try:
            context.check_secret(reference)
        except ForeignSecret as error:
            error.message = f"Sink {target.name!r} ({target.kind}): {error.message}"
            raise


def refuse_foreign_in(targets: Iterable[SinkTarget], context: SinkContext) -> None:
    """For targets that no table uses yet: those that are otherwise wrong are refused with the table."""
    for target in targets:
        try:
            settings = None if target.kind == DELTA_KIND else settings_class(target.kind).of(target)
        except Invalid:
            continue
        if settings is not None:
            refuse_foreign_secrets(target, settings, context)


def refuse_unable(table: TableDeclaration, context: SinkContext) -> None:
    """Refuses a policy that one of the table's sinks cannot honour, when it is declared."""
    for target in (target for target in table.targets if target.kind != DELTA_KIND):
        settings = settings_class(target.kind).of(target)
        refuse_foreign_secrets(target, settings, context)
        settings.refuse_tenant(context.tenant or "")
        connector_class(target.kind)
        able = settings.abilities_for(table, target.name, context)
        lacking = None
        if table.primary_key and not able.upsert:
            lacking = "replace rows by key"
        elif not table.primary_key and not able.exactly_once_append:
            lacking = "append rows exactly once; the table has no primary key"
        elif table.publish == "atomic" and not able.atomic_publish:
            lacking = "show an import as a whole (publish: atomic)"
        if lacking:
            raise Invalid(
                f"Sink {target.name!r} ({target.kind}) of {table.name} cannot {lacking}.",
                remedy="Choose another sink, or another policy.",
                code="sink_unable",
            )


def plan_of(kind: str) -> Plan | None:
    """The connector's `plan`, if it tells the statements that it would run."""
    found: Plan | None = getattr(connector_class(kind), "plan", None)
    return found


def _registered() -> dict[str, EntryPoint]:
    ours = {kind: EntryPoint(kind, place, ENTRY_POINTS) for kind, place in OURS.items()}
    return {**ours, **{kind: point for kind, point in _others().items() if kind not in ours}}


@cache
def _others() -> dict[str, EntryPoint]:
    """Found by reading the metadata of every installed package: once is enough."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


@cache
def connector_class(kind: str) -> type[Connector]:
    """Needs the driver."""
    settings = settings_class(kind)
    module, _, name = settings.connector.partition(":")
    try:
        found: type[Connector] = getattr(import_module(module), name)
    except ImportError as error:
        if settings.extra is None:
            raise
        raise Invalid(
            f"Sink {settings.kind!r} needs a driver that is not installed.",
            remedy=f"pip install 'millrace[{settings.extra}]'",
            code="no_driver",
        ) from error
    return found
