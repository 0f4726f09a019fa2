"""Where a Delta table lives: a target's settings in, the table's objects or its store out.

`location: platform` stands for the place that the operator set (MILLRACE_LAKE__…). A place that a tenant names is reached
with the tenant's own keys, and its hosts are judged as a webhook's are; names below it follow the one rule: TENANT/TABLE."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from millrace.exchange.places import Places
from millrace.lake.hdfs import HdfsObjects
from millrace.lake.http import Addresses
from millrace.lake.objects import Objects
from millrace.lake.remote import RemoteStore
from millrace.lake.s3 import S3Objects
from millrace.lake.s3_signing import S3Keys
from millrace.lake.store import Store
from millrace.model.errors import Clash, Invalid, Unavailable
from millrace.model.names import checked_name
from millrace.model.sinks import DELTA_KIND, REMOTE_DELTA_KIND, SinkTarget
from millrace.model.table import Definition, TableDeclaration
from millrace.settings import Settings
from millrace.sink.addresses import permitted

PLATFORM = "platform"
# Where the operator keeps rejected rows; no tenant can declare it.
ERRORS_PLACE = {"location": "platform-errors"}
# Which of the operator's settings names the place.
_OPERATORS = {PLATFORM: "location", ERRORS_PLACE["location"]: "errors_location"}
DEFAULT_REGION = "us-east-1"
# Where a name node answers HTTP, if nothing else is said.
NAME_NODE_PORTS = {"hdfs": 9870, "webhdfs": 9870, "swebhdfs": 9871}
SCHEMES = ("s3", *NAME_NODE_PORTS)

Secret = Callable[[str], str]


def check_place(settings: Mapping[str, Any]) -> None:
    """Refuses a declared place that could never be written to."""
    if settings["location"] == PLATFORM:
        if set(settings) != {"location"}:
            raise Invalid("The platform's lake has no settings of yours.", remedy="Leave all but the location out.")
        return
    location = str(settings["location"])
    parts = urlsplit(location)
    if parts.scheme not in SCHEMES or not _is_plain(parts):
        remedy = "Write s3://BUCKET/PATH or hdfs://HOST:PORT/PATH."
        raise Invalid(f"{location!r:.80} is no place for a table.", remedy=remedy, code="bad_path")
    for name in ("access_key", "secret_key") if parts.scheme == "s3" else ():
        if name not in settings:
            raise Invalid(
                f"A table in {location!r:.60} needs {name}.",
                remedy="Give a reference to a secret of yours: env:…, file:… or k8s:….",
                code="no_credentials",
            )


def table_url(settings: Mapping[str, Any], tenant: str, table: str) -> str:
    """As readers name it."""
    location = str(_resolved(settings)[0]["location"]).rstrip("/")
    return f"{location}/{checked_name('tenant', tenant)}/{checked_name('table', table)}"


def table_objects(settings: Mapping[str, Any], tenant: str, table: str, secret: Secret) -> Objects:
    given, addresses = _resolved(settings)
    url = table_url(settings, tenant, table)
    parts = urlsplit(url)
    if parts.scheme in NAME_NODE_PORTS:
        return HdfsObjects(url, given.get("endpoint") or _name_node(parts), parts.path, _who(given, secret), addresses)
    token = secret(str(given["session_token"])) if given.get("session_token") else None
    keys = S3Keys(secret(str(given["access_key"])), secret(str(given["secret_key"])), token)
    region = str(given.get("region") or DEFAULT_REGION)
    return S3Objects(parts.netloc, parts.path.strip("/"), keys, addresses, given.get("endpoint"), region)


def copies_of(places: Places, settings: Mapping[str, Any], tenant: str, table: str) -> Path:
    """The folder through which the table is read; another place is another folder."""
    named = f"{table_url(settings, tenant, table)}\n{_resolved(settings)[0].get('endpoint')}"
    return places.copies(tenant, table, hashlib.blake2b(named.encode(), digest_size=8).hexdigest())


def remote_store(places: Places, settings: Mapping[str, Any], tenant: str, table: str, secret: Secret) -> RemoteStore:
    objects = table_objects(settings, tenant, table, secret)
    return RemoteStore(copies_of(places, settings, tenant, table), objects)


def table_store(places: Places, definition: Definition, secret: Secret) -> Store:
    """Where the table's rows are read: on this machine if they are, else in the first place that it names."""
    settings, named = _elsewhere(definition), (definition.tenant, definition.table.name)
    return places.table_store(*named) if settings is None else remote_store(places, settings, *named, secret)


def location_of(places: Places, definition: Definition) -> str:
    """The same for people, and for readers of their own."""
    settings, named = _elsewhere(definition), (definition.tenant, definition.table.name)
    if settings is None:
        return str(places.table(*named))
    try:
        return table_url(settings, *named)
    except Unavailable:
        return PLATFORM


def _elsewhere(definition: Definition) -> Mapping[str, Any] | None:
    targets = definition.table.targets
    if any(target.kind == DELTA_KIND for target in targets):
        return None
    return next((target.settings for target in targets if target.kind == REMOTE_DELTA_KIND), None)


def placed(table: TableDeclaration, before: Sequence[SinkTarget]) -> TableDeclaration:
    """The declaration with every `delta` where it belongs: where it is already, else where the operator wants new tables.
    Refuses to move a table: what it holds would stay behind."""
    known = {target.name: target for target in before}
    return replace(table, targets=tuple(_placed(table, target, known.get(target.name)) for target in table.targets))


def _placed(table: TableDeclaration, target: SinkTarget, before: SinkTarget | None) -> SinkTarget:
    there = before if before is not None and before.kind in (DELTA_KIND, REMOTE_DELTA_KIND) else None
    if target.kind == DELTA_KIND:
        is_remote = _is_platforms(there) if there is not None else Settings().lake.location is not None
        if is_remote:
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


def _resolved(settings: Mapping[str, Any]) -> tuple[Mapping[str, Any], Addresses]:
    """The settings themselves, and how hosts are looked up: the operator's own need no judging."""
    if settings["location"] not in _OPERATORS:
        check_place(settings)
        return settings, permitted
    given, named = Settings().lake.model_dump(exclude_none=True), _OPERATORS[settings["location"]]
    if named not in given:
        raise Unavailable(
            "The platform has no lake of its own.", remedy=f"Have the operator set MILLRACE_LAKE__{named.upper()}."
        )
    given["location"] = given[named]
    check_place(given)
    return given, lambda host: [host]


def _name_node(parts: SplitResult) -> str:
    """Of an hdfs:// place the port is that of Hadoop's own protocol."""
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    usual = NAME_NODE_PORTS[parts.scheme]
    port = usual if parts.scheme == "hdfs" else parts.port or usual
    return f"{'https' if parts.scheme == 'swebhdfs' else 'http'}://{host}:{port}"


def _who(given: Mapping[str, Any], secret: Secret) -> dict[str, str]:
    if given.get("token"):
        return {"delegation": secret(str(given["token"]))}
    return {"user.name": str(given["user"])} if given.get("user") else {}


def _is_plain(parts: SplitResult) -> bool:
    told_twice = parts.query or parts.fragment or "@" in parts.netloc or ".." in parts.path.split("/")
    return bool(parts.netloc) and not told_twice
