"""One suite for every sink: the greatest version of each key wins, whatever comes twice, late, shuffled or not at all."""

import json
import random
from collections.abc import Sequence
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from millrace.arrow.types import arrow_type
from millrace.declare.table import parse_table
from millrace.model.sinks import Abilities, Fault, SinkTarget
from millrace.model.table import Definition, define
from millrace.sink.connector import Connector, Rows, Work
from millrace.sink.registry import OURS, connector_class, settings_class
from tests.sinks.conftest import away
from tests.support.inventory import inventory
from tests.support.reading_back import read_back
from tests.support.sink_context import open_target
from tests.support.waiting import wait_until

_tenants = count(1)
ID, TEXT = {"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}
EVERY_TYPE: list[tuple[str, Any, list[Any]]] = [
    ("flag", "boolean", [True, False, None]),
    ("small", "int", [-(2**31), 2**31 - 1, None]),
    ("large", "long", [-(2**63), 2**63 - 1, None]),
    ("single", "float", [1.5, float("inf"), None]),
    ("twice", "double", [-1.7976931348623157e308, 5e-324, None]),
    ("words", "string", ["", 'quotes " and \\ and \n lines, ünïcødé 🚰', None]),
    ("long_text", "string", ["x" * 1_000_000, "y", None]),
    ("raw", "bytes", [b"\x00\xff", b"", None]),
    (
        "money",
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4},
        ["12345.6789", "-0.0001", None],
    ),
    ("day", {"type": "int", "logicalType": "date"}, ["2024-02-29", "0001-01-01", None]),
    (
        "at",
        {"type": "long", "logicalType": "timestamp-micros"},
        ["2024-01-31T12:00:00.123456Z", "1900-01-01T00:00:00Z", None],
    ),
    ("list of", {"type": "array", "items": "long"}, [[1, 2], [], None]),
    ("select", {"type": "map", "values": "string"}, [[("a", "b")], [], None]),
    (
        'odd "name"',
        {"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}]},
        [{"x": 1}, {"x": 2}, None],
    ),
]


def definition(
    fields: list[dict[str, Any]], key: Sequence[str] = ("id",), tenant: str | None = None, **lineage: Any
) -> Definition:
    name = tenant or f"tenant{next(_tenants)}"
    document = {"schema": {"type": "record", "name": "notes", "fields": fields}, "primary_key": list(key)}
    revision = lineage.pop("revision", 1)
    return define(name, parse_table(document), revision, **lineage)


def rows(table: Definition, values: Sequence[tuple[int, Any, int, bool]], chunk: str = "imp_1/0") -> Rows:
    """(id, text, version, deleted)."""
    columns = {
        "id": pa.array([value[0] for value in values], pa.int64()),
        "text": pa.array([None if value[3] else value[1] for value in values], pa.string()),
        "_version": pa.array([value[2] for value in values], pa.int64()),
        "_import": pa.array(["imp_1"] * len(values)),
        "_row": pa.array(range(1, len(values) + 1), pa.int64()),
        "_deleted": pa.array([value[3] for value in values], pa.bool_()),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    versions = sorted({value[2] for value in values})
    return Rows(tuple(f"{chunk}@{version}" for version in versions), tuple(versions), lambda: iter([batch]))


def abilities_of(sink: Connector) -> Abilities:
    return next(settings_class(kind).abilities for kind in OURS if isinstance(sink, connector_class(kind)))


def stored(sink: Connector, table: Definition) -> dict[int, tuple[Any, int]]:
    found = read_back(sink, table).to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key at most once"
    return {row["id"]: (row["text"], row["_version"]) for row in found}


def known(*definitions: Definition) -> Any:
    return {one.fingerprint: one for one in definitions}.__getitem__


def test_the_greatest_version_wins_in_any_order(sink: Connector) -> None:
    table = definition([ID, TEXT])
    sink.prepare(table, known(table))
    chance = random.Random(7)
    history = [(chance.randrange(12), f"v{v}", v, chance.random() < 0.3) for v in range(1, 120)]
    parts = [history[at : at + 5] for at in range(0, len(history), 5)]
    batches = [[row] for part in parts for row in part] + [[row] for row in chance.choices(history, k=60)]
    chance.shuffle(batches)
    for batch in batches:
        sink.write(Work(table, [rows(table, batch)]))
    expected: dict[int, tuple[str, int]] = {}
    for key, text, version, deleted in history:
        expected.pop(key, None)
        if not deleted:
            expected[key] = text, version
    assert stored(sink, table) == expected


def test_several_groups_of_one_write_hold_the_same_key(sink: Connector) -> None:
    table = definition([ID, TEXT])
    sink.prepare(table, known(table))
    sink.write(
        Work(table, [rows(table, [(1, "new", 9, False)]), rows(table, [(1, "old", 3, False), (2, "b", 4, False)])])
    )
    assert stored(sink, table) == {1: ("new", 9), 2: ("b", 4)}


def test_a_raised_floor_takes_old_rows_and_keeps_late_ones_away(sink: Connector) -> None:
    table = definition([ID, TEXT])
    sink.prepare(table, known(table))
    sink.write(Work(table, [rows(table, [(1, "a", 1, False), (2, "b", 9, False)])]))
    sink.write(Work(table, [], floor=5))
    assert stored(sink, table) == {2: ("b", 9)}
    sink.write(Work(table, [rows(table, [(3, "late", 5, False), (4, "new", 6, False)])]))
    assert stored(sink, table) == {2: ("b", 9), 4: ("new", 6)}


def test_rows_without_a_key_are_appended_once(sink: Connector) -> None:
    if not abilities_of(sink).exactly_once_append:
        pytest.skip("this sink refuses tables without a key")
    table = definition([ID, TEXT], key=())
    sink.prepare(table, known(table))
    first = rows(table, [(1, "a", 1, False), (1, "a", 1, False)], "imp_1/0")
    both = Rows(
        (*first.chunks, "imp_1/1"), (1, 2), lambda: iter([*first.open(), *rows(table, [(2, "b", 2, False)]).open()])
    )
    for one in (first, first, both, both):
        sink.write(Work(table, [one]))
    assert sorted(read_back(sink, table)["id"].to_pylist()) == [1, 1, 2]


def test_every_type_and_any_name_survives(sink: Connector) -> None:
    fields = [ID, *({"name": name, "type": ["null", kind]} for name, kind, _ in EVERY_TYPE)]
    table = definition(fields)
    sink.prepare(table, known(table))
    columns = {column.name: column for column in table.columns}
    values: dict[str, Any] = {"id": pa.array([1, 2, 3], pa.int64())}
    for name, _, cells in EVERY_TYPE:
        kind = arrow_type(columns[name])
        textual = pa.types.is_decimal(kind) or pa.types.is_temporal(kind)
        values[name] = pa.array(cells, pa.string()).cast(kind) if textual else pa.array(cells, kind)
    values |= {
        "_version": pa.array([7] * 3, pa.int64()),
        "_import": pa.array(["imp_1"] * 3),
        "_row": pa.array([1, 2, 3], pa.int64()),
    }
    batch = pa.RecordBatch.from_pydict({**values, "_deleted": pa.array([False] * 3)})
    sink.write(Work(table, [Rows(("imp_1/0",), (7,), lambda: iter([batch]))]))
    found = sorted(read_back(sink, table).to_pylist(), key=lambda row: row["id"])
    assert [row["words"] for row in found] == EVERY_TYPE[5][2]
    assert [row["small"] for row in found] == EVERY_TYPE[1][2]
    assert [row["large"] for row in found] == EVERY_TYPE[2][2]
    assert [row["twice"] for row in found] == EVERY_TYPE[4][2]
    assert [None if row["raw"] is None else bytes(row["raw"]) for row in found] == EVERY_TYPE[7][2]
    assert [None if row["money"] is None else str(row["money"]) for row in found] == EVERY_TYPE[8][2]
    assert [len(row["long_text"] or "") for row in found] == [1_000_000, 1, 0]
    assert found[2]["list of"] is None
    kept_as_json = [json.loads(row["select"]) for row in found if isinstance(row["select"], str)]
    assert kept_as_json in ([], [{"a": "b"}, {}]), "a map is an object, also without anything in it"


def test_a_table_takes_the_shape_of_its_newest_definition(sink: Connector) -> None:
    first = definition([ID, TEXT])
    sink.prepare(first, known(first))
    sink.write(Work(first, [rows(first, [(1, "a", 1, False)])]))
    fields = [ID, {**TEXT, "name": "words", "aliases": ["text"]}, {"name": "city", "type": "string", "default": "?"}]
    second = definition(fields, tenant=first.tenant, revision=2, previous=first.fingerprint)
    for _ in range(2):
        sink.prepare(second, known(first, second))
    assert read_back(sink, second).select(["id", "words", "city"]).to_pylist() == [{"id": 1, "words": "a", "city": "?"}]
    sink.prepare(first, known(first, second))
    assert read_back(sink, second).num_rows == 1, "an older definition changes nothing"


def test_a_new_generation_begins_empty(sink: Connector) -> None:
    first = definition([ID, TEXT])
    sink.prepare(first, known(first))
    sink.write(Work(first, [rows(first, [(1, "a", 1, False)])]))
    fields = [ID, {"name": "text", "type": ["null", "long"]}]
    second = definition(fields, tenant=first.tenant, revision=2, generation=2, floor=5)
    sink.prepare(second, known(first, second))
    assert read_back(sink, second).num_rows == 0


def test_a_text_is_kept_as_it_is_or_is_its_row_s_fault(sink: Connector) -> None:
    table, odd = definition([ID, TEXT]), "nul \x00 in text"
    work = Work(table, [rows(table, [(1, odd, 1, False)])])
    sink.prepare(table, known(table))
    if abilities_of(sink).every_text:
        sink.write(work)
    else:
        with pytest.raises(Exception) as met:
            sink.write(work)
        assert sink.classify(met.value) is Fault.ROW
    sink.write(Work(table, [rows(table, [(2, "fine", 2, False)])]))
    assert stored(sink, table) == {2: ("fine", 2)} | ({1: (odd, 1)} if abilities_of(sink).every_text else {})


def test_the_check_leaves_nothing_behind(request: pytest.FixtureRequest, sink: Connector, target: SinkTarget) -> None:
    receiver = request.getfixturevalue("rows_received") if target.kind == "webhook" else None
    before = inventory(target, receiver)
    sink.check()
    sink.check()
    # A broker deletes a topic after it has confirmed that.
    wait_until(lambda: inventory(target, receiver) == before, 20, "what the check made to be gone")


def test_a_server_that_is_away_is_the_sink_s_fault(target: SinkTarget) -> None:
    sink = open_target(away(target))
    with pytest.raises(Exception) as met:
        sink.check()
    assert sink.classify(met.value) is Fault.SINK
