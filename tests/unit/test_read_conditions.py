"""Which files a statement needs: never too few, and few where a WHERE says so."""

import json
from decimal import Decimal
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pytest

from millrace.lake.condition import EQUAL, GREATER, LESS, Condition
from millrace.lake.pruning import may_have
from millrace.read.conditions import conditions_by_table

TYPES = {
    "id": pa.int64(), "price": pa.decimal128(20, 2), "ratio": pa.float64(), "single": pa.float32(), "name": pa.string(),
    "day": pa.date32(), "moment": pa.timestamp("us", tz="UTC"), "flag": pa.bool_(),
}  # fmt: skip
BOUNDS = {
    "id": (100, 200), "price": (10.5, 20.5), "ratio": (0.5, 0.75), "single": (0.1, 0.2), "name": ("b", "d"),
    "day": ("2024-01-10", "2024-01-20"), "moment": ("2024-01-10T00:00:00.000Z", "2024-01-20T12:00:00.123Z"),
}  # fmt: skip
LEAST, GREATEST = ({name: bounds[side] for name, bounds in BOUNDS.items()} for side in (0, 1))
STATS = orjson.dumps({"numRecords": 9, "minValues": LEAST, "maxValues": GREATEST}).decode()


def asked(sql: str) -> dict[tuple[str, ...], list[list[Condition]]]:
    (tree,) = duckdb.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone() or ("",)
    parsed = json.loads(tree)
    assert not parsed["error"], sql
    return conditions_by_table(parsed)


def is_read(where: str, stats: str | None = STATS) -> bool:
    wanted = asked(f"SELECT * FROM t WHERE {where}")
    return ("t",) not in wanted or may_have(stats, TYPES, wanted["t",])


@pytest.mark.parametrize(
    "where",
    [
        "id = 99", "id = 201", "99 = id", "id < 99 AND id > 0", "id > 200.5", "id BETWEEN 201 AND 300", "id IN (1, 2, 300)",
        "id = -150", "t.id = 1", "ID = 1", "(id = 1 AND flag)", "id < 50 AND name = 'c'", "price = 10.49", "price > 20.51",
        "ratio < 0.4", "single BETWEEN 0 AND 0.05", "name = 'a'", "name > 'dd'", "name IN ('a', 'e')", "day = '2024-01-09'",
        "day > DATE '2024-01-21'", "moment < TIMESTAMP '2024-01-09 23:59:59'", "moment >= '2024-01-20 12:00:01'",
        "moment < '2024-01-09'",
    ],
)  # fmt: skip
def test_files_without_a_wanted_row_are_left_out(where: str) -> None:
    assert not is_read(where)


@pytest.mark.parametrize(
    "where",
    [
        "id = 100", "id = 200", "id <= 100", "id >= 200", "id IN (1, 150)", "id BETWEEN 0 AND 100", "id = 1 OR name = 'c'",
        "NOT id = 1", "id <> 1", "id = '1'", "id + 1 = 2", "abs(id) = 1", "x.id = 1", "unknown = 1", "id IS NULL",
        "id = NULL",
        "price = 10.50", "price <= 10.5", "ratio = 0.5", "ratio = 0.75", "single = 0.1", "single = 0.2", "id = 1e2",
        "flag = true", "ratio > 0.8", "single >= 0.3",
        "name = 'b'", "name = 'd'", "name >= 'd'", "name LIKE 'a%'", "lower(name) = 'a'", "day = '2024-01-10'",
        "moment <= '2024-01-10'", "moment = '2024-01-20 12:00:00.123456'", "moment > '2024-01-20T12:00:00.123'",
        "day < '10/02/2024'",
        "moment < '2024-01-09 00:00:00+05'", "id = (SELECT 1)", "EXISTS (SELECT 1 FROM u WHERE u.k = 1)",
    ],
)  # fmt: skip
def test_in_doubt_a_file_is_read(where: str) -> None:
    assert is_read(where)


@pytest.mark.parametrize(
    "stats", [None, "", "{}", '{"numRecords":1}', '{"minValues":{"id":"x"},"maxValues":{"id":[]}}', "[1]"]
)
def test_statistics_that_say_nothing_leave_nothing_out(stats: str | None) -> None:
    assert is_read("id = 1", stats)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM t", "SELECT * FROM t, u WHERE t.id = 1", "SELECT * FROM t JOIN u USING (id) WHERE id = 1",
        "SELECT * FROM t WHERE id = 1 UNION ALL SELECT * FROM t", "SELECT id + 1 AS id FROM t WHERE id = 1",
        "SELECT * FROM t AS u(a, b) WHERE a = 1", "SELECT * FROM t TABLESAMPLE 10% WHERE id = 1",
        "SELECT (SELECT count(*) FROM t) FROM t WHERE id = 1", "SELECT * FROM (SELECT * FROM t) WHERE id = 1",
    ],
)  # fmt: skip
def test_a_table_that_is_read_without_conditions_somewhere_is_read_whole(sql: str) -> None:
    assert ("t",) not in asked(sql)


def test_each_place_where_a_table_is_read_counts() -> None:
    found = asked("SELECT * FROM t WHERE id = 1 UNION ALL SELECT * FROM t WHERE id > 2 AND id <= 3")
    one, two, three = Decimal(1), Decimal(2), Decimal(3)
    assert found == {
        ("t",): [
            [Condition("id", EQUAL, (one,))],
            [Condition("id", GREATER, (two,)), Condition("id", LESS, (three,))],
        ]
    }
    told: Any = [[condition.to_json() for condition in place] for place in found["t",]]
    assert [[Condition.from_json(one) for one in place] for place in told] == found["t",]
    nested = asked("WITH a AS (SELECT * FROM acme.t WHERE id = 1) SELECT * FROM a WHERE id = 7")
    assert nested["acme", "t"] == [[Condition("id", EQUAL, (one,))]]
