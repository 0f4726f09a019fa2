"""Rows that a target will never take are set apart, and every other row arrives exactly once, also where there is no key."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from millrace.deliver import delivery as delivering
from millrace.model.sinks import Fault
from millrace.sink.connector import Rows, Work
from tests.sinks.test_contract import ID, TEXT, definition, rows


class Picky:
    """Writes all of a work or nothing, each chunk once where there is no key, and never a text that is bad."""

    def __init__(self) -> None:
        self.chunks: set[str] = set()
        self.taken: Counter[int] = Counter()
        self.ended: list[Any] = []

    def write(self, work: Work) -> None:
        new: Counter[int] = Counter()
        chunks: set[str] = set()
        for part in work.rows:
            batches = [row for batch in part.open() for row in batch.to_pylist()]
            keys = [row["id"] for row in batches]
            assert not work.definition.table.primary_key or len(set(keys)) == len(keys), "no key twice in a group"
            if any(row["text"] == "bad" for row in batches):
                raise ValueError
            open_versions = {v for c, v in zip(part.chunks, part.versions, strict=True) if c not in self.chunks}
            is_append = not work.definition.table.primary_key
            new.update(row["id"] for row in batches if not is_append or row["_version"] in open_versions)
            chunks.update(part.chunks)
        self.taken += new
        self.chunks |= chunks
        self.ended += work.ended

    def classify(self, error: BaseException) -> Fault:
        return Fault.ROW if isinstance(error, ValueError) else Fault.TABLE


def work(key: tuple[str, ...], *groups: Rows) -> Work:
    return Work(definition([ID, TEXT], key=key), groups, ended=[("imp_1", ("imp_1/0",))])


def group(ids: range, version: int, bad: set[int]) -> Rows:
    table = definition([ID, TEXT])
    return rows(table, [(at, "bad" if at in bad else "fine", version, False) for at in ids], f"imp_{version}/0")


@pytest.mark.parametrize("bad", [{3}, {0, 9}, set(range(10)), {13, 4}])
def test_without_a_key_every_good_row_arrives_once_also_when_all_comes_again(bad: set[int]) -> None:
    sink: Any = Picky()
    first, second = group(range(10), 1, bad), group(range(10, 15), 2, bad)
    merged = Rows(first.chunks + second.chunks, (1, 2), lambda: iter([*first.open(), *second.open()]))
    for given in (work((), merged), work((), first, second), work((), second)):
        refused = delivering._write(sink, given)
        assert {row.row - 1 + (10 if row.version == 2 else 0) for row in refused} == bad & set(
            range(10 if len(given.rows) == 1 and given.rows[0] is second else 0, 15)
        )
    assert sink.taken == Counter(set(range(15)) - bad)


def test_groups_that_hold_the_same_key_are_not_mixed() -> None:
    sink: Any = Picky()
    refused = delivering._write(sink, work(("id",), group(range(6), 2, {4}), group(range(6), 1, set())))
    assert [(row.row, row.version) for row in refused] == [(5, 2)]
    assert sink.taken == Counter(dict.fromkeys(range(6), 2)) - Counter({4: 1})
    assert sink.ended == [("imp_1", ("imp_1/0",))]


def test_a_group_without_rows_is_not_at_fault() -> None:
    empty = Rows((), (), lambda: iter([pa.RecordBatch.from_pylist([])]))
    sink: Any = Picky()
    assert delivering._write(sink, work(("id",), empty)) == []
