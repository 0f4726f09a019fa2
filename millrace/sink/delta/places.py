"""Where a Delta table lives: a target's settings in, the table's objects or its store out.

`location: platform` is the place that the operator set (MILLRACE_LAKE__…). A place that a tenant names is reached with the
tenant's own keys, and its hosts are judged like those of webhooks. Below the place, a table is at TENANT/TABLE."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from millrace.lake.bounds import OURS, TENANTS
from millrace.lake.hdfs import HdfsObjects
from millrace.lake.remote import RemoteStore
from millrace.lake.store import Store
from millrace.model.errors import Clash, Unavailable
from millrace.model.names import checked_name
from millrace.model.sinks import DELTA_KIND, REMOTE_DELTA_KIND, SinkTarget
from millrace.model.table import Definition, TableDeclaration
from millrace.outbound.addresses import resolve
from millrace.outbound.objects import Objects
from millrace.outbound.pinning import Addresses
from millrace.outbound.s3 import S3Objects
from millrace.outbound.s3_signing import S3Keys
from millrace.outbound.webhdfs import NAME_NODE_PORTS, identity, name_node
from millrace.sink.context import SinkContext
from millrace.sink.delta.settings import ERRORS_PLACE, PLATFORM, DeltaRemoteSettings

# Which of the operator's settings names the place.
_OPERATORS = {PLATFORM: "location", ERRORS_PLACE.location: "errors_location"}
_SHARED = ("endpoint", "region", "access_key", "secret_key", "session_token", "user", "token")


def table_url(context: SinkContext, place: DeltaRemoteSettings, tenant: str, table: str) -> str:
    """The address that readers use."""
    location = _resolved(context, place)[0].location.rstrip("/")
    return f"{location}/{checked_name('tenant', tenant)}/{checked_name('table', table)}"


def table_objects(context: SinkContext, place: DeltaRemoteSettings, tenant: str, table: str) -> Objects:
    given, addresses = _resolved(context, place)
    url = table_url(context, place, tenant, table)
    parts = urlsplit(url)
    is_operators = place.location in _OPERATORS
    # A connector tries names that are no tenant's, with the secrets of the one it was opened for.
    owner = context if context.tenant is not None else context.for_tenant(tenant)
    secret = context.secrets.read_operators if is_operators else owner.secret
    if parts.scheme in NAME_NODE_PORTS:
        who = identity(given.user, secret(given.token) if given.token else None)
        return HdfsObjects(url, given.endpoint or name_node(parts), parts.path, who, addresses)
    token = secret(given.session_token) if given.session_token else None
    keys = S3Keys(secret(given.access_key or ""), secret(given.secret_key or ""), token)
    if is_operators:
        # Loaded only if the operator has a bucket: every worker pays for it.
        from millrace.outbound.operator_objects import OperatorObjects, s3_store  # noqa: PLC0415

        return OperatorObjects(url, s3_store(parts.netloc, keys, given.endpoint, given.region), parts.path)
    return S3Objects(parts.netloc, parts.path.strip("/"), keys, addresses, given.endpoint, given.region)


def copies_of(context: SinkContext, place: DeltaRemoteSettings, tenant: str, table: str) -> Path:
    """The folder that caches the table. Each place has its own folder."""
    named = f"{table_url(context, place, tenant, table)}\n{_resolved(context, place)[0].endpoint}"
    return context.places.copies(tenant, table, hashlib.blake2b(named.encode(), digest_size=8).hexdigest())


def remote_store(context: SinkContext, place: DeltaRemoteSettings, tenant: str, table: str) -> RemoteStore:
    objects = table_objects(context, place, tenant, table)
    bounds = OURS if place.location in _OPERATORS else TENANTS
    return RemoteStore(copies_of(context, place, tenant, table), objects, bounds)


def table_store(context: SinkContext, definition: Definition) -> Store:
    """Where the table's rows are read: on this machine if it has a local sink, else in its first remote place."""
    place, named = _remote_place(definition), (definition.tenant, definition.table.name)
    return context.places.table_store(*named) if place is None else remote_store(context, place, *named)


def location_of(context: SinkContext, definition: Definition) -> str:
    """The same place, for people and other readers."""
    place, named = _remote_place(definition), (definition.tenant, definition.table.name)
    if place is None:
        return str(context.places.table(*named))
    try:
        return table_url(context, place, *named)
    except Unavailable:
        return PLATFORM


def is_kept_here(definition: Definition) -> bool:
    return any(target.kind == DELTA_KIND for target in definition.table.targets)


def _remote_place(definition: Definition) -> DeltaRemoteSettings | None:
    remote = (target for target in definition.table.targets if target.kind == REMOTE_DELTA_KIND)
    return None if is_kept_here(definition) else next(map(DeltaRemoteSettings.of, remote), None)


def placed(context: SinkContext, table: TableDeclaration, before: Sequence[SinkTarget]) -> TableDeclaration:
    """The declaration with a place for every `delta` sink: where it is already, else where the operator wants new tables.
    Refuses to move a table, because its rows would stay behind."""
    known = {target.name: target for target in before}
    is_remote = context.lake.location is not None
    targets = tuple(_placed(table, target, known.get(target.name), is_remote) for target in table.targets)
    return replace(table, targets=targets)


def _placed(table: TableDeclaration, target: SinkTarget, before: SinkTarget | None, is_remote: bool) -> SinkTarget:
    there = before if before is not None and before.kind in (DELTA_KIND, REMOTE_DELTA_KIND) else None
    if target.kind == DELTA_KIND and (_is_platforms(there) if there is not None else is_remote):
        target = replace(target, kind=REMOTE_DELTA_KIND, settings={"location": PLATFORM})
    if there is None or target.kind not in (DELTA_KIND, REMOTE_DELTA_KIND) or _where(there) == _where(target):
        return target
    raise Clash(
        f"Sink {target.name!r} of {table.name} is at {_where(there)}; it cannot move to {_where(target)}.",
        remedy="Add a sink of another name there: it is filled with what the table holds.",
        code="sink_moved",
    )


def _is_platforms(target: SinkTarget) -> bool:
    return target.settings.get("location") == PLATFORM


def _where(target: SinkTarget) -> str:
    return str(target.settings.get("location", "this platform's disk")).rstrip("/")


def _resolved(context: SinkContext, place: DeltaRemoteSettings) -> tuple[DeltaRemoteSettings, Addresses]:
    """The effective settings, and how hosts are looked up. The operator's own hosts are not judged."""
    if place.location not in _OPERATORS:
        return place, context.permitted
    named = _OPERATORS[place.location]
    location = getattr(context.lake, named)
    if location is None:
        raise Unavailable(
            "The platform has no lake of its own.", remedy=f"Have the operator set MILLRACE_LAKE__{named.upper()}."
        )
    shared = {name: value for name in _SHARED if (value := getattr(context.lake, name)) is not None}
    return DeltaRemoteSettings(location=location, **shared), resolve
