"""Facts about chunks, as they stand on `progress`. Each has an identity, so that telling it again changes nothing."""

from dataclasses import asdict, dataclass
from typing import Any

from millrace.model.chunk import ChunkVerdict


@dataclass(frozen=True, slots=True)
class ChunkJudged:
    verdicts: tuple[ChunkVerdict, ...]


@dataclass(frozen=True, slots=True)
class Durable:
    """The chunks whose rows this sink will not lose."""

    sink: str
    chunks: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RowsRefused:
    """How many rows of a chunk this sink will never take: (import, chunk, rows)."""

    sink: str
    chunks: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """How far a query has durably come: the end of its last committed batch, and that batch's start (what a restart may
    read again), by topic and partition."""

    query: str
    ends: dict[str, dict[str, int]]
    starts: dict[str, dict[str, int]]


Fact = ChunkJudged | Durable | RowsRefused | Checkpointed


# What a fact is called in `progress`. Records outlive a renaming of the classes.
_WIRE_NAMES = {ChunkJudged: "Judged", Durable: "Durable", RowsRefused: "Refused", Checkpointed: "Checkpointed"}


def to_dict(fact: Fact) -> dict[str, Any]:
    return {"fact": _WIRE_NAMES[type(fact)], **asdict(fact)}


def from_dict(data: dict[str, Any]) -> Fact:
    match data["fact"]:
        case "Judged":
            return ChunkJudged(tuple(ChunkVerdict(**verdict) for verdict in data["verdicts"]))
        case "Durable":
            return Durable(data["sink"], tuple((import_id, number) for import_id, number in data["chunks"]))
        case "Refused":
            return RowsRefused(data["sink"], tuple((one[0], one[1], one[2]) for one in data["chunks"]))
        case _:
            return Checkpointed(data["query"], data["ends"], data["starts"])
