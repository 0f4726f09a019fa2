"""The table log as the checker reads it: records of table-ops in, ops in order out, and which revision was in force where."""

import json
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import polars as pl

from checker.dump import Dump
from checker.shapes import Shape, from_avro

TABLE_OPS, EVENTS, PROGRESS, RAW_INPUT = "table-ops", "events", "progress", "raw-input"
FULL_READS = ("first", "second")
TAIL = "tail"

DEFINE, BEGIN, APPEND, END, TRUNCATE = "define_table", "begin_import", "append", "end_import", "truncate_table"
SETTLE = "settle_import"
MAKING_IMPORTS = (BEGIN, APPEND)


@dataclass(frozen=True, slots=True)
class LogOp:
    """`seq` is the op's place: ops of a tenant share a partition, so offsets order them."""

    seq: int
    partition: int
    at_ms: int
    id: str
    kind: str
    tenant: str
    subject: str
    body: dict[str, Any]


def topic_of(records: pl.DataFrame, reader: str, topic: str) -> pl.DataFrame:
    """One reader's records of one topic, each once, in order. Topics are named with a prefix."""
    mine = records.filter((pl.col("reader") == reader) & pl.col("topic").str.ends_with(topic))
    return mine.unique(["partition", "offset"], keep="first").sort("partition", "offset")


def read_ops(dump: Dump) -> list[LogOp]:
    frame = topic_of(dump.records, FULL_READS[0], TABLE_OPS)
    found = []
    for partition, offset, at_ms, text in frame.select("partition", "offset", "at_ms", "text").iter_rows():
        said = json.loads(text)
        place = (offset, partition, at_ms)
        found.append(LogOp(*place, said["id"], said["kind"], said["tenant"], said["subject"], said["body"]))
    return found


class Revisions:
    """Which shape a table had at each place of the log."""

    def __init__(self, ops: list[LogOp], applied: set[str]) -> None:
        self._places: dict[tuple[str, str], list[int]] = {}
        self._shapes: dict[tuple[str, str], list[Shape]] = {}
        for op in sorted(ops, key=lambda op: op.seq):
            if op.kind == DEFINE and op.id in applied:
                self._places.setdefault((op.tenant, op.subject), []).append(op.seq)
                self._shapes.setdefault((op.tenant, op.subject), []).append(from_avro(op.body["declaration"]["schema"]))

    def at(self, tenant: str, table: str, seq: int) -> Shape | None:
        """What the last definition before that place says; None if there is none."""
        before = bisect_left(self._places.get((tenant, table), []), seq)
        return self._shapes[tenant, table][before - 1] if before else None

    def last(self, tenant: str, table: str) -> Shape | None:
        shapes = self._shapes.get((tenant, table))
        return shapes[-1] if shapes else None

    @property
    def changes(self) -> int:
        """How often a table that was there was given another shape."""
        return sum(a != b for shapes in self._shapes.values() for a, b in pairwise(shapes))
