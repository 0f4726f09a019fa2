"""An import as the log and the API tell of it: an op and a document in; what it holds, and how sure one can be of it, out."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from checker.oplog import APPEND, BEGIN, LogOp
from checker.shapes import Shape

TERMINAL = ("completed", "failed", "cancelled")
ALL_REJECTED = "nothing_accepted"


@dataclass(frozen=True, slots=True)
class Part:
    """A file inside an import; its rows stand behind `offset` others there. An append holds rows of several requests."""

    file: dict[str, Any]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Imported:
    """An import: what it holds, its place in the log, and the platform's last word about it."""

    id: str
    op: LogOp
    parts: tuple[Part, ...]
    shape: Shape
    document: dict[str, Any]

    @property
    def tenant(self) -> str:
        return self.op.tenant

    @property
    def table(self) -> str:
        return self.op.subject

    @property
    def seq(self) -> int:
        return self.op.seq

    @property
    def state(self) -> str:
        return str(self.document.get("state", "unknown"))

    @property
    def is_over(self) -> bool:
        return self.state in TERMINAL

    @property
    def is_certain(self) -> bool:
        """Whether every row of it was judged: what was sent decides, nothing else."""
        return self.state == "completed" or (self.document.get("error") or {}).get("code") == ALL_REJECTED

    @property
    def is_append(self) -> bool:
        return self.op.kind == APPEND

    @property
    def keys(self) -> list[str]:
        return [str(part.file["key"]) for part in self.parts]

    @property
    def sent_rows(self) -> int:
        return sum(int(part.file["rows"]) for part in self.parts)

    @property
    def counts(self) -> dict[str, int]:
        return dict(self.document.get("rows") or {})

    @property
    def begun_ms(self) -> float:
        """When it was admitted, which on an exclusive table may be long after it was asked for."""
        started = self.document.get("started_at")
        return self.op.at_ms if started is None else datetime.fromisoformat(started).timestamp() * 1000


def parts_of(op: LogOp, by_key: Mapping[str, dict[str, Any]]) -> tuple[Part, ...]:
    """The files an op carries: one by its key, or those whose rows were gathered into an append, in their order there."""
    if op.kind == BEGIN:
        file = by_key.get(op.body.get("idempotency_key") or "")
        return (Part(file),) if file else ()
    parts: list[Part] = []
    offset = 0
    for stream, (first, last) in (op.body.get("streams") or {}).items() if op.kind == APPEND else ():
        if stream in by_key:
            parts.append(Part(by_key[stream], offset))
        offset += last - first + 1
    return tuple(parts)
