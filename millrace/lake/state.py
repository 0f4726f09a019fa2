"""Millrace's own state in a table's configuration, so that it is committed together with its rows: metadata in, the state
out, and back into a configuration.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from millrace.lake.actions import Metadata
from millrace.model.errors import Corrupt

_DEFINITION = "millrace.definition"
_KEY = "millrace.key"
_FLOOR = "millrace.floor"
_TOMBSTONES = "millrace.tombstones"
_SETTLED = "millrace.settled"
_FEED = "millrace.changeFeed"
NO_FLOOR = -1
_FINGERPRINT = re.compile(r"[0-9A-Za-z_-]{1,64}", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class TableState:
    """`definition` is the fingerprint that the table was prepared for; None if unknown. `key` are its key columns. Writes at
    or below the `floor` lose. `tombstones` are the valid tombstone files. Chunks that were recorded up to `settled_ms`
    belong to imports that are over: none of them comes again. `feed`: the definition declares a change feed."""

    definition: str | None = None
    key: tuple[str, ...] | None = None
    floor: int = NO_FLOOR
    tombstones: tuple[str, ...] = ()
    settled_ms: int = -1
    feed: bool = False

    @staticmethod
    def of(metadata: Metadata | None) -> "TableState":
        known = metadata.configuration if metadata else {}
        try:
            return TableState(
                _fingerprint(known),
                _texts(known, _KEY) if _KEY in known else None,
                _number(known, _FLOOR, NO_FLOOR),
                _texts(known, _TOMBSTONES) if _TOMBSTONES in known else (),
                _number(known, _SETTLED, -1),
                known.get(_FEED) == "true",
            )
        except ValueError as error:
            raise Corrupt(
                f"The configuration of table {metadata and metadata.name!r} is damaged: {error}.",
                remedy="Give its properties that begin with millrace. the values back that the log has before the change.",
            ) from error

    def configured(self, configuration: Mapping[str, str]) -> dict[str, str]:
        """The configuration with this state. Its other entries stay. Initial values are left out."""
        ours = {
            _DEFINITION: self.definition,
            _KEY: None if self.key is None else orjson.dumps(self.key).decode(),
            _FLOOR: str(self.floor) if self.floor > NO_FLOOR else None,
            _TOMBSTONES: orjson.dumps(self.tombstones).decode() if self.tombstones else None,
            _SETTLED: str(self.settled_ms) if self.settled_ms >= 0 else None,
            _FEED: "true" if self.feed else None,
        }
        others = {name: value for name, value in configuration.items() if name not in ours}
        return {**others, **{name: value for name, value in ours.items() if value is not None}}


def _fingerprint(known: Mapping[str, str]) -> str | None:
    """It becomes part of a file's name."""
    found = known.get(_DEFINITION)
    if found is not None and not _FINGERPRINT.fullmatch(found):
        raise ValueError(f"{_DEFINITION} is {found[:_SHOWN]!r}, which names no definition")
    return found


def _texts(known: Mapping[str, str], name: str) -> tuple[str, ...]:
    found = orjson.loads(known[name])
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise ValueError(f"{name} is {known[name][:_SHOWN]!r}, not a list of texts")
    return tuple(found)


def _number(known: Mapping[str, str], name: str, unset: int) -> int:
    found = known.get(name, str(unset))
    if not _NUMBER.fullmatch(found) or int(found) >= 1 << 63:
        raise ValueError(f"{name} is {found[:_SHOWN]!r}, not a number that it can be")
    return int(found)
