"""The actions of Delta's log as values: JSON in, frozen values out, and back."""

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import orjson

from millrace.lake.bounds import parsed
from millrace.model.errors import Unavailable

Action = dict[str, Any]

# Those that readers must know as well.
READER_FEATURES = frozenset(
    {
        "deletionVectors", "timestampNtz", "columnMapping", "typeWidening", "typeWidening-preview", "v2Checkpoint",
        "variantType", "variantType-preview",
    }
)  # fmt: skip
# The features that each writer version brought, before tables listed theirs. A table of version 7 lists them.
_OF_VERSION = {
    2: {"appendOnly", "invariants"},
    3: {"checkConstraints"},
    4: {"changeDataFeed", "generatedColumns"},
    5: {"columnMapping"},
    6: {"identityColumns"},
}
_LISTING_READER, _LISTING_WRITER = 3, 7
# What an entry takes in memory besides its texts, about.
FILE_WEIGHT, TRANSACTION_WEIGHT, VALUE_WEIGHT = 600, 100, 150
_SHOWN = 60


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """Where the deletion vector of a file is: inline ('i'), or at an offset of a file that has a name ('u') or a path ('p').
    We write 'u': engines that read deletion vectors do not all read the others."""

    storage: str
    location: str
    offset: int | None
    size: int
    cardinality: int

    @property
    def identity(self) -> str:
        return f"{self.storage}{self.location}@{self.offset}"

    def to_json(self) -> Action:
        described = {"storageType": self.storage, "pathOrInlineDv": self.location}
        offset = {} if self.offset is None else {"offset": self.offset}
        return {**described, **offset, "sizeInBytes": self.size, "cardinality": self.cardinality}

    @classmethod
    def from_json(cls, value: Action) -> "DeletionVector":
        return cls(
            _text(value, "storageType"),
            _text(value, "pathOrInlineDv"),
            None if value.get("offset") is None else _number(value, "offset"),
            _number(value, "sizeInBytes"),
            _number(value, "cardinality"),
        )


@dataclass(frozen=True, slots=True)
class AddFile:
    """A live data file. `rows` counts all its rows, deleted ones too; -1 if its writer gave no number."""

    path: str
    size: int
    rows: int
    modified_ms: int
    deletion_vector: DeletionVector | None = None
    stats: str | None = None
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    tags: Mapping[str, str | None] | None = None

    @property
    def name(self) -> str:
        """The file's name under the table's root (the log holds it URL-encoded)."""
        if is_address(self.path):
            raise Unavailable(
                f"The table's file {self.path[:_SHOWN]!r} is outside its folder, as in a shallow clone.",
                remedy="Write its rows again with the engine that added it (UPDATE … SET x = x), or undo it.",
            )
        return unquote(self.path)

    @property
    def dead_rows(self) -> int:
        return self.deletion_vector.cardinality if self.deletion_vector else 0

    @property
    def live_rows(self) -> int:
        return self.rows - self.dead_rows

    @property
    def weight(self) -> int:
        """What it takes in memory, about."""
        said = len(self.path) + len(self.stats or "")
        for values in (self.partition_values, self.tags or {}):
            said += sum(VALUE_WEIGHT + len(name) + len(value or "") for name, value in values.items())
        vector = self.deletion_vector
        return FILE_WEIGHT + said + (0 if vector is None else FILE_WEIGHT + len(vector.location))

    @property
    def written_stats(self) -> str | None:
        """Its statistics as the log holds them: with the number of rows, and whether the bounds are exact."""
        if self.rows < 0 or (self.stats is not None and self.deletion_vector is None):
            return self.stats
        return _with_bounds(self.stats, self.rows, is_tight=self.deletion_vector is None)

    def to_json(self, data_change: bool = True) -> Action:
        add: Action = {
            "path": self.path,
            "partitionValues": dict(self.partition_values),
            "size": self.size,
            "modificationTime": self.modified_ms,
            "dataChange": data_change,
            "stats": self.written_stats,
        }
        if self.tags is not None:
            add["tags"] = dict(self.tags)
        if self.deletion_vector:
            add["deletionVector"] = self.deletion_vector.to_json()
        return {"add": add}

    @classmethod
    def from_json(cls, add: Action) -> "AddFile":
        stats, vector = add.get("stats"), add.get("deletionVector")
        known = parsed(_text(add, "stats")) if stats else {}
        return cls(
            path=checked_path(_text(add, "path")),
            size=_number(add, "size"),
            rows=_number(known, "numRecords") if known.get("numRecords") is not None else -1,
            modified_ms=_number(add, "modificationTime"),
            deletion_vector=DeletionVector.from_json(vector) if vector else None,
            stats=stats,
            partition_values=_texts(add.get("partitionValues") or {}),
            tags=_texts(add["tags"]) if add.get("tags") else None,
        )


def _with_bounds(stats: str | None, rows: int, is_tight: bool) -> str:
    """The statistics with the number of rows, and whether their bounds are exact. Ours begin with both."""
    beginning = f'{{"numRecords":{rows},"tightBounds":{str(is_tight).lower()}'
    if stats is not None and stats.startswith(beginning):
        return stats
    # Other numbers stay as they are written: a bound of a decimal may have more digits than a double.
    known = json.loads(stats, parse_float=orjson.Fragment, parse_int=orjson.Fragment) if stats else {}
    others = {name: value for name, value in known.items() if name not in ("numRecords", "tightBounds")}
    return orjson.dumps({"numRecords": rows, "tightBounds": is_tight, **others}).decode()


def remove_action(file: AddFile, data_change: bool = True) -> Action:
    remove: Action = {
        "path": file.path,
        "deletionTimestamp": now_ms(),
        "dataChange": data_change,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.partition_values),
        "size": file.size,
    }
    if file.deletion_vector:
        remove["deletionVector"] = file.deletion_vector.to_json()
    return {"remove": remove}


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A file that readers of older versions may still need, until its retention ends: a data file, or a deletion vector that
    another one has replaced. Checkpoints name it, so that no engine's VACUUM deletes it before."""

    path: str
    removed_ms: int
    size: int = 0
    deletion_vector: DeletionVector | None = None

    @property
    def weight(self) -> int:
        return FILE_WEIGHT + len(self.path) + (0 if self.deletion_vector is None else FILE_WEIGHT)

    @classmethod
    def from_json(cls, remove: Action) -> "RemovedFile":
        vector = remove.get("deletionVector")
        return cls(
            checked_path(_text(remove, "path")),
            _number(remove, "deletionTimestamp") if remove.get("deletionTimestamp") else 0,
            _number(remove, "size") if remove.get("size") else 0,
            DeletionVector.from_json(vector) if vector else None,
        )


@dataclass(frozen=True, slots=True)
class Metadata:
    id: str
    schema_json: str
    created_ms: int
    configuration: Mapping[str, str]
    name: str | None = None
    partition_columns: tuple[str, ...] = ()

    @classmethod
    def new(cls, name: str, schema_json: str, configuration: Mapping[str, str]) -> "Metadata":
        return cls(str(uuid.uuid4()), schema_json, now_ms(), configuration, name)

    def to_json(self) -> Action:
        value: Action = {
            "id": self.id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.schema_json,
            "partitionColumns": list(self.partition_columns),
            "createdTime": self.created_ms,
            "configuration": dict(self.configuration),
        }
        return {"metaData": value if self.name is None else {**value, "name": self.name}}

    @classmethod
    def from_json(cls, value: Action) -> "Metadata":
        return cls(
            _text(value, "id"),
            _text(value, "schemaString"),
            _number(value, "createdTime", least=-(1 << 63)) if value.get("createdTime") is not None else 0,
            {name: text or "" for name, text in _texts(value.get("configuration") or {}).items()},
            _text(value, "name") if value.get("name") is not None else None,
            _names(value, "partitionColumns"),
        )


@dataclass(frozen=True, slots=True)
class Protocol:
    """`strange` are features that readers must know, and that are not known here."""

    reader: int = 1
    writer: int = 2
    features: frozenset[str] = frozenset()
    strange: frozenset[str] = frozenset()

    @property
    def is_known(self) -> bool:
        """Whether its versions are some that tell which features are in force."""
        return 1 <= self.reader <= _LISTING_READER and 1 <= self.writer <= _LISTING_WRITER

    @property
    def features_in_force(self) -> frozenset[str]:
        if self.writer >= _LISTING_WRITER:
            return self.features
        return frozenset(name for version, names in _OF_VERSION.items() if version <= self.writer for name in names)

    def having(self, *features: str) -> "Protocol":
        """This protocol with the features added. It does not change if none is needed."""
        if self.features_in_force.issuperset(features):
            return self
        known = self.features_in_force | {*features, *_OF_VERSION[2]}
        # Features of writers only need no newer reader.
        reader = _LISTING_READER if known & READER_FEATURES else self.reader
        return Protocol(reader, _LISTING_WRITER, known)

    def to_json(self) -> Action:
        value: Action = {"minReaderVersion": self.reader, "minWriterVersion": self.writer}
        if self.writer >= _LISTING_WRITER:
            if self.reader >= _LISTING_READER:
                value["readerFeatures"] = sorted(self.features & READER_FEATURES)
            value["writerFeatures"] = sorted(self.features)
        return {"protocol": value}

    @classmethod
    def from_json(cls, value: Action) -> "Protocol":
        read, written = (frozenset(_names(value, name)) for name in ("readerFeatures", "writerFeatures"))
        versions = _number(value, "minReaderVersion"), _number(value, "minWriterVersion")
        return cls(*versions, read | written, read - READER_FEATURES)


@dataclass(frozen=True, slots=True)
class Transaction:
    """A chunk (or a step of any application) that the table contains."""

    app_id: str
    version: int
    updated_ms: int

    def to_json(self) -> Action:
        return {"txn": {"appId": self.app_id, "version": self.version, "lastUpdated": self.updated_ms}}

    @classmethod
    def from_json(cls, value: Action) -> "Transaction":
        updated = _number(value, "lastUpdated") if value.get("lastUpdated") else 0
        return cls(_text(value, "appId"), _number(value, "version", least=-1), updated)

    @property
    def weight(self) -> int:
        return TRANSACTION_WEIGHT + len(self.app_id)


def _text(value: Action, name: str) -> str:
    found = value[name]
    if not isinstance(found, str):
        raise TypeError(f"{name} is {str(found)[:_SHOWN]!r}, not a text")
    return found


def _names(value: Action, name: str) -> tuple[str, ...]:
    found = value.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise TypeError(f"{name} is {str(found)[:_SHOWN]!r}, not a list of texts")
    return tuple(found)


def checked_path(path: str) -> str:
    """ValueError if it is no plain name within the table's folder. A shallow clone has addresses: they are refused where a
    file is read."""
    name = unquote(path)
    if is_address(path):
        return path
    if "\0" in name or not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise ValueError(f"the path {path[:_SHOWN]!r} leaves the table's folder, or is no plain name")
    return path


def is_address(path: str) -> bool:
    return path.startswith(("/", "file:")) or "://" in path


def _number(value: Action, name: str, least: int = 0) -> int:
    found = value[name]
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found < 1 << 63:
        raise TypeError(f"{name} is {str(found)[:_SHOWN]!r}, not a number that it can be")
    return found


def _texts(value: Action) -> dict[str, str | None]:
    found = dict(value)
    if not all(isinstance(text, str | None) for text in found.values()):
        raise TypeError("a value of a map is not a text")
    return found
