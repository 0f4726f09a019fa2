"""Which kinds of sinks there are: ours, one line each, and those that other packages register by entry point."""

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from millrace.model.errors import Invalid
from millrace.model.sinks import DELTA_KIND, Abilities, SinkTarget
from millrace.model.table import TableDeclaration
from millrace.sink.connector import Connector
from millrace.sink.settings_rules import refuse_settings

ENTRY_POINTS = "millrace.sinks"
OURS = {
    "delta-remote": "millrace.sink.delta.remote:DeltaRemoteSink",
    "postgres": "millrace.sink.postgres.sink:PostgresSink",
    "cassandra": "millrace.sink.cassandra.sink:CassandraSink",
    "bigquery": "millrace.sink.bigquery.sink:BigQuerySink",
    "files": "millrace.sink.files.sink:FilesSink",
    "jdbc": "millrace.sink.jdbc.sink:JdbcSink",
    "kafka": "millrace.sink.kafka.sink:KafkaSink",
    "webhook": "millrace.sink.webhook:WebhookSink",
}
# Those whose driver is no part of the platform itself, and the extra that brings it.
EXTRAS = {"cassandra": "cassandra", "bigquery": "bigquery", "jdbc": "jdbc"}


def kinds() -> list[str]:
    return [DELTA_KIND, *OURS, *(point.name for point in entry_points(group=ENTRY_POINTS))]


@cache
def sink_class(kind: str) -> type[Connector]:
    if kind in OURS:
        return _our_class(kind)
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == kind:
            loaded: type[Connector] = point.load()
            return loaded
    raise Invalid(f"There is no sink {kind!r}.", remedy=f"Choose one of: {', '.join(kinds())}.", code="no_sink")


def _our_class(kind: str) -> type[Connector]:
    module, _, name = OURS[kind].partition(":")
    try:
        found: type[Connector] = getattr(import_module(module), name)
    except ImportError as error:
        if kind not in EXTRAS:
            raise
        raise Invalid(
            f"Sink {kind!r} needs a driver that is not installed.",
            remedy=f"pip install 'millrace[{EXTRAS[kind]}]'",
            code="no_driver",
        ) from error
    return found


def refuse_unable(table: TableDeclaration) -> None:
    """A policy that one of the table's sinks cannot honour is refused when it is declared."""
    for target in table.targets:
        if target.kind != DELTA_KIND:
            _refuse(table, target, sink_class(target.kind))


def abilities_of(table: TableDeclaration, target: SinkTarget) -> Abilities:
    """What the target can do for the table, set up as it is; refuses settings that do not fit the table."""
    sink = sink_class(target.kind)
    declared = getattr(sink, "declared", None)
    able: Abilities = sink.abilities if declared is None else declared(table, target)
    return able


def _refuse(table: TableDeclaration, target: SinkTarget, sink: type[Connector]) -> None:
    refuse_settings(target, sink.settings_schema)
    able = abilities_of(table, target)
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
