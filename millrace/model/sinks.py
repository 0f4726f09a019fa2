"""Sinks as values: the declared targets, the abilities of a kind of sink, and how far a failure reaches."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from millrace.model.errors import Invalid, MillraceError
from millrace.model.names import checked_name

DELTA_KIND = "delta"
# Declared as `delta` with a location: a remote table, delivered by couriers.
REMOTE_DELTA_KIND = "delta-remote"
# The Cassandra that the platform runs itself, as seed 002 calls it.
CORE_STORE_KIND = "coredms"
# Kinds whose tables are in the keyspace that `key_space` names.
WITH_KEY_SPACES = ("cassandra", CORE_STORE_KIND)
# The store of rejected rows. An import that has some ends only after they are durable there too.
ERROR_STORE = "errors"


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """One sink of a table. `settings` hold references to secrets, never a secret."""

    name: str
    kind: str
    required: bool = True
    settings: dict[str, Any] = field(default_factory=dict)


DELTA = SinkTarget(DELTA_KIND, DELTA_KIND)


def parse_targets(given: object) -> tuple[SinkTarget, ...]:
    """`[delta, {kind: postgres, name: warehouse, required: false, host: …}]`."""
    if not isinstance(given, list) or not given:
        raise Invalid(f"sinks is {given!r:.60}.", remedy="Name at least one, for example [delta].")
    targets = tuple(_target(each) for each in given)
    names = [target.name for target in targets]
    for name in names:
        if names.count(name) > 1:
            raise Invalid(f"Two sinks are called {name!r}.", remedy="Give each a name of its own.")
    return targets


def _target(given: object) -> SinkTarget:
    if isinstance(given, str):
        return SinkTarget(checked_name("sink", given), given)
    if not isinstance(given, Mapping) or not isinstance(given.get("kind"), str):
        raise Invalid(f"{given!r:.80} is not a sink.", remedy="Give its kind, and what that kind needs.")
    kind = checked_name("sink", given["kind"])
    required = given.get("required", True)
    if not isinstance(required, bool):
        raise Invalid(f"required of sink {kind!r} is {required!r}.", remedy="Write true or false.")
    settings = {name: value for name, value in given.items() if name not in ("kind", "name", "required")}
    name = checked_name("sink", given.get("name", kind))
    if name == ERROR_STORE:
        raise Invalid(f"A sink is called {name!r}, like the store of rejected rows.", remedy="Give it another name.")
    if kind == DELTA_KIND and (settings or name != DELTA_KIND):
        if "location" not in settings:
            what = "has settings" if settings else "has a name of its own"
            raise Invalid(f"Sink {name!r} {what} and no location.", remedy="Say where: s3://BUCKET/PATH.")
        kind = REMOTE_DELTA_KIND
    return SinkTarget(name, kind, required, settings)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a kind of sink can do; asked when a table is declared."""

    upsert: bool = True
    delete: bool = True
    atomic_publish: bool = False
    nested_types: bool = False
    exactly_once_append: bool = False
    every_text: bool = True
    """If not, rows whose text holds U+0000 are refused."""
    survives: str = "process"
    """What durable means there: `process` (a killed process) or `power` (a power cut)."""
    takes_ends: bool = False
    """It is told when all of an import is there, and tells its readers."""
    deletes_aged: bool = False
    """It deletes rows that are older than was agreed when the platform asks for it."""
    keeps_table: bool = False
    """An empty table stays there when a tenant is erased."""


class Fault(Enum):
    """How far a failure reaches."""

    ROW = "row"
    TABLE = "table"
    SINK = "sink"


class SinkFailed(MillraceError):
    """A write that failed. `fault` says how far the failure reaches."""

    def __init__(self, message: str, fault: Fault, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy, code=f"{fault.value}_fault")
        self.fault = fault
