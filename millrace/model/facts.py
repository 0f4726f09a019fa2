"""Facts about chunks, as recorded on `progress`. Each fact has an identity: recording it again changes nothing."""

from dataclasses import asdict, dataclass
from typing import Any

from millrace.model.chunk import ChunkVerdict


@dataclass(frozen=True, slots=True)
class ChunkJudged:
    verdicts: tuple[ChunkVerdict, ...]


@dataclass(frozen=True, slots=True)
class Durable:
    """The chunks whose rows are durable in this sink."""

    sink: str
    chunks: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RowsRefused:
    """The number of rows of a chunk that this sink refuses for good: (import, chunk, rows)."""

    sink: str
    chunks: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """The progress of a query: end and start of its last committed batch, by topic and partition. A restart may read this
    batch again."""

    query: str
    ends: dict[str, dict[str, int]]
    starts: dict[str, dict[str, int]]


Fact = ChunkJudged | Durable | RowsRefused | Checkpointed


# The names of facts in `progress`. Old records keep them when a class is renamed.
_WIRE_NAMES = {ChunkJudged: "Judged", Durable: "Durable", RowsRefused: "Refused", Checkpointed: "Checkpointed"}


def to_dict(fact: Fact) -> dict[str, Any]:
    return {"fact": _WIRE_NAMES[type(fact)], **asdict(fact)}


def from_dict(data: dict[str, Any]) -> Fact:
    match data["fact"]:
        case "Judged":
            return ChunkJudged(tuple(ChunkVerdict(**verdict) for verdict in data["verdicts"]))
        case "Durable":
            return Durable(data["sink"], tuple(map(tuple, data["chunks"])))
        case "Refused":
            return RowsRefused(data["sink"], tuple(map(tuple, data["chunks"])))
        case _:
            return Checkpointed(data["query"], data["ends"], data["starts"])
