"""What another engine may have changed about a table so that this writer cannot go on: refused, in words that say how to undo
it. A table may list features that it does not use. They are no obstacle.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from millrace.lake.actions import Action, Metadata
from millrace.lake.bounds import parsed
from millrace.lake.feed import PROPERTY as FEED
from millrace.lake.feed import has_feed
from millrace.lake.log import Snapshot
from millrace.lake.schema import SYSTEM_COLUMNS, TableSpec, declared_schema
from millrace.model.columns import COLUMNS_OF_FEED
from millrace.model.errors import Unavailable

KNOWN_FEATURES = frozenset({"appendOnly", "changeDataFeed", "deletionVectors", "timestampNtz"})
APPEND_ONLY = "delta.appendOnly"
_CHECKPOINTS = "delta.checkpointPolicy"
_UNDO = "Undo it there (RESTORE TABLE … TO VERSION AS OF …), or declare a new generation, which begins empty."
# RESTORE leaves the features of a table as they are.
_DROP = "Drop it there (ALTER TABLE … DROP FEATURE …), or declare a new generation, which begins empty."
_CLASSIC = (
    f"Set '{_CHECKPOINTS}' to 'classic' (ALTER TABLE … SET TBLPROPERTIES …), and have a checkpoint written there."
)
_VARIANT = re.compile(r'"(?:type|elementType|keyType|valueType)"\s*:\s*"variant"')


def _is_set(name: str, unset: str = "false") -> Callable[[Metadata], bool]:
    return lambda table: table.configuration.get(name, unset).lower() != unset


def _in_schema(mark: str) -> Callable[[Metadata], bool]:
    return lambda table: mark in table.schema_json


def _has_variant(table: Metadata) -> bool:
    return _VARIANT.search(table.schema_json) is not None


# Features that a table may list: whether it uses them, and how whoever uses them stops.
_OPTIONAL: Mapping[str, tuple[Callable[[Metadata], bool], str]] = {
    "invariants": (_in_schema('"delta.invariants"'), _UNDO),
    "checkConstraints": (
        lambda table: any(name.startswith("delta.constraints.") for name in table.configuration),
        "Drop them (ALTER TABLE … DROP CONSTRAINT …), and declare them as rules of the table.",
    ),
    "generatedColumns": (_in_schema('"delta.generationExpression"'), _UNDO),
    "identityColumns": (_in_schema('"delta.identity.'), _UNDO),
    "columnMapping": (_is_set("delta.columnMapping.mode", "none"), _UNDO),
    "allowColumnDefaults": (_in_schema('"CURRENT_DEFAULT"'), "Drop them: ALTER TABLE … ALTER COLUMN … DROP DEFAULT."),
    "typeWidening": (_in_schema('"delta.typeChanges"'), _UNDO),
    "typeWidening-preview": (_in_schema('"delta.typeChanges"'), _UNDO),
    # deltalake lists it in each table whose deletion vectors it switches on.
    "variantType": (_has_variant, _UNDO),
    "variantType-preview": (_has_variant, _UNDO),
    "v2Checkpoint": (_is_set(_CHECKPOINTS, "classic"), _CLASSIC),
}
OPTIONAL_FEATURES = frozenset(_OPTIONAL)
_OF_READERS = ("columnMapping", "typeWidening", "typeWidening-preview", "variantType", "variantType-preview")


def is_unknown(snapshot: Snapshot) -> bool:
    """Whether the protocol lists a feature that no writer may ignore, used or not."""
    protocol = snapshot.protocol
    return not protocol.is_known or not protocol.features_in_force <= KNOWN_FEATURES | _OPTIONAL.keys()


def refuse_unknown(snapshot: Snapshot, where: str) -> None:
    """For whoever deletes files: a feature that is not known here may need files that the log does not name."""
    if is_unknown(snapshot):
        raise Unavailable(
            f"Another engine gave the Delta table at {where} features that are not known here.", remedy=_DROP
        )


def refuse_unwritable(snapshot: Snapshot, spec: TableSpec, recorded: TableSpec | None = None) -> None:
    """`recorded` is the declaration that the table was prepared for: its columns must be there as they were declared."""
    table = snapshot.metadata
    if table is None:
        return
    named = f"table {spec.name!r}"
    _refuse_unknown_version(snapshot, named)
    for feature in sorted(snapshot.protocol.features_in_force - KNOWN_FEATURES):
        is_used, remedy = _OPTIONAL.get(feature, (lambda _: True, _DROP))
        if is_used(table):
            raise Unavailable(f"Another engine gave {named} the feature {feature}.", remedy=remedy)
    if table.partition_columns:
        columns = ", ".join(table.partition_columns)
        raise Unavailable(f"Another engine partitioned {named} by {columns}.", remedy=_UNDO)
    if has_feed(table) and (taken := _column_of_feed(table.schema_json)):
        raise Unavailable(
            f"Column {taken!r} of {named} has the name of a column of Delta's change feed, which is switched on.",
            remedy=f"Switch the feed off: ALTER TABLE … SET TBLPROPERTIES ('{FEED}' = 'false').",
        )
    if recorded is not None:
        change = _change(table.schema_json, declared_schema(recorded), _required(recorded))
        if change:
            raise Unavailable(f"Another engine changed {named}: {change}.", remedy=_UNDO)


def refuse_unreadable(snapshot: Snapshot, name: str) -> None:
    """For whoever reads the files themselves: those of such tables have other columns than the table."""
    table = snapshot.metadata
    if table is None:
        return
    _refuse_unknown_version(snapshot, f"table {name}")
    if strange := sorted(snapshot.protocol.strange):
        raise Unavailable(f"Table {name} uses {strange[0]}, since another engine changed it.", remedy=_DROP)
    listed = (feature for feature in _OF_READERS if feature in snapshot.protocol.features_in_force)
    used = next((feature for feature in listed if _OPTIONAL[feature][0](table)), None)
    if used is not None or table.partition_columns:
        what = f"uses {used}" if used else f"is partitioned by {', '.join(table.partition_columns)}"
        raise Unavailable(f"Table {name} {what}, since another engine changed it.", remedy=_UNDO)


def _refuse_unknown_version(snapshot: Snapshot, named: str) -> None:
    protocol = snapshot.protocol
    if not protocol.is_known:
        raise Unavailable(
            f"Another engine gave {named} the protocol of reader {protocol.reader} and writer {protocol.writer}.",
            remedy=_UNDO,
        )


def refuse_removals(snapshot: Snapshot, spec: TableSpec, actions: Sequence[Action]) -> None:
    """Keeps the promise of a table to which rows are only added."""
    if snapshot.metadata is None or not _is_set(APPEND_ONLY)(snapshot.metadata):
        return
    if any(action["remove"]["dataChange"] for action in actions if "remove" in action):
        raise Unavailable(
            f"Rows of table {spec.name!r} would change, and it is set to {APPEND_ONLY}.",
            remedy=f"Let rows change: ALTER TABLE … UNSET TBLPROPERTIES ('{APPEND_ONLY}').",
        )


def _required(spec: TableSpec) -> frozenset[str]:
    return frozenset(field.name for field in (*spec.schema, *SYSTEM_COLUMNS) if not field.nullable)


@lru_cache(maxsize=4096)
def _column_of_feed(stored_json: str) -> str | None:
    names = (str(field["name"]) for field in parsed(stored_json)["fields"])
    return next((name for name in names if name.lower() in COLUMNS_OF_FEED), None)


@lru_cache(maxsize=4096)
def _change(stored_json: str, declared_json: str, required: frozenset[str]) -> str | None:
    """Which declared column is not as it was declared; None if all are."""
    stored = {field["name"]: field for field in parsed(stored_json)["fields"]}
    for field in parsed(declared_json)["fields"]:
        found = stored.get(field["name"])
        if found is None:
            return f"column {field['name']!r} is gone"
        if _plain(found["type"]) != _plain(field["type"]):
            return f"column {field['name']!r} is {_plain(found['type'])}, not {_plain(field['type'])}"
    ours = {field.name for field in SYSTEM_COLUMNS}
    strict = (name for name, field in stored.items() if not field.get("nullable", True))
    null = next((name for name in strict if name not in required | ours), None)
    return None if null is None else f"column {null!r} may not be null any more"


def _plain(kind: Any) -> Any:
    """The type without what engines may add to it: whether parts may be null, and comments."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return {field["name"]: _plain(field["type"]) for field in kind["fields"]}
    if kind["type"] == "map":
        return {"map": [_plain(kind["keyType"]), _plain(kind["valueType"])]}
    return [_plain(kind["elementType"])]
