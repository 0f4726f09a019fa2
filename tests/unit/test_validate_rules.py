"""Rules about rows: what is rejected, flagged, held or only counted, and that a chunk's neighbours change nothing."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.model.errors import Invalid
from millrace.model.table import Definition
from millrace.validate.judge import JudgedChunk
from tests.support.chunks import column, csv, jsonl, table
from tests.support.examples import examples

FIELDS = [
    column("id", "long"),
    column("speed", ["null", "double"]),
    column("note", ["null", "string"]),
    column("price", ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}]),
    column("at", ["null", {"type": "long", "logicalType": "timestamp-micros"}]),
    column("day", ["null", {"type": "int", "logicalType": "date"}]),
]


def ruled(*rules: dict[str, Any], **more: Any) -> Definition:
    return table(*FIELDS, key=("id",), rules=[*rules], **more)


def rejected(result: JudgedChunk) -> dict[int, list[str]]:
    if result.rejected is None:
        return {}
    return {row["row"]: [reason["rule"] for reason in row["reasons"]] for row in result.rejected.to_pylist()}


def broken(*rows: dict[str, Any], rule: dict[str, Any], **stamp: Any) -> list[int]:
    """Which of the rows, numbered by themselves from 1, break the rule."""
    result = jsonl(ruled({"name": "r", **rule}), *({"id": n, **row} for n, row in enumerate(rows)), **stamp)
    return sorted(rejected(result))


@pytest.mark.parametrize(
    ("rule", "values", "breaking"),
    [
        ({"column": "speed", "min": 0, "max": 10}, [0, 10, 10.5, -1, None], [3, 4]),
        ({"column": "id", "min": 2.5}, [{}, {}, {}, {}], [1, 2, 3]),
        ({"column": "price", "max": "0.30"}, ["0.30", "0.31", None], [2]),
        ({"column": "day", "min": "2024-01-02"}, ["2024-01-01", "2024-01-02"], [1]),
        ({"column": "at", "max": "2024-01-01T00:00:00Z"}, ["2024-01-01T00:00:00Z", "2024-01-01T00:00:01Z"], [2]),
        ({"column": "note", "in": ["a", "b"]}, ["a", "c", None], [2]),
        ({"column": "id", "in": [0, 2, 2.5]}, [{}, {}, {}], [2]),
        ({"column": "note", "matches": "^[a-z]+$"}, ["abc", "a1", None, ""], [2, 4]),
        ({"column": "note", "min_length": 2, "max_length": 3}, ["a", "ab", "äöü", "abcd"], [1, 4]),
        ({"column": "note", "required": True}, ["", None], [2]),
    ],
)
def test_tests_of_one_column(rule: dict[str, Any], values: list[Any], breaking: list[int]) -> None:
    rows = [value if isinstance(value, dict) else {rule["column"]: value} for value in values]
    assert broken(*rows, rule=rule) == breaking


def test_expressions_compare_columns_and_what_is_unknown_is_kept() -> None:
    rule = {"check": "speed * 2 <= id or note = 'ok' or price + 0.20 = 0.30"}
    rows: list[dict[str, Any]] = [{"speed": 0}, {"speed": 1}, {"speed": 9, "note": "ok"}, {"note": "no"}]
    assert broken(
        *rows, {"speed": 9, "note": "no", "price": "0.10"}, {"speed": 9, "note": "x", "price": "1"}, rule=rule
    ) == [6]
    assert broken({"speed": 1, "note": "x", "price": "1"}, rule=rule) == [1]


def test_freshness_is_judged_by_the_chunks_version_and_no_clock() -> None:
    rule = {"column": "at", "max_age_seconds": 60, "max_ahead_seconds": 5}
    moments = ["1970-01-01T00:00:00Z", "1969-12-31T23:58:59Z", "1970-01-01T00:00:05Z", "1970-01-01T00:00:06Z"]
    assert broken(*({"at": moment} for moment in moments), rule=rule) == [2, 4]
    days = [{"day": "1970-01-01"}, {"day": "1970-01-02"}, {"day": "1969-12-31"}]
    assert broken(*days, rule={**rule, "column": "day"}) == [2, 3]


def test_every_reason_is_told_and_a_cell_that_cannot_be_read_is_not_missing_too() -> None:
    definition = ruled(
        {"name": "there", "column": "speed", "required": True},
        {"name": "slow", "column": "speed", "max": 5},
        {"name": "short", "column": "note", "max_length": 1},
    )
    assert rejected(csv(definition, "1,9,long\n2,fast,n\n3,,n\n", "id", "speed", "note")) == {
        1: ["slow", "short"],
        2: ["type"],
        3: ["there"],
    }


def test_only_rejecting_rules_reject_and_the_others_count_what_was_accepted() -> None:
    definition = ruled(
        {"name": "bad", "column": "note", "in": ["a", "b"]},
        {"name": "odd", "column": "speed", "max": 5, "action": "flag"},
        {"name": "big", "column": "speed", "max": 6, "action": "hold"},
        {"name": "seen", "column": "speed", "max": 7, "action": "count"},
        {"column": "speed", "max_null_percent": 10, "action": "hold"},
    )
    result = csv(definition, "1,9,a\n2,9,x\n3,1,b\n4,,a\n", "id", "speed", "note", first_row=11)
    assert rejected(result) == {12: ["bad"]}
    assert result.verdict.quality == {
        "rows": 3,
        "broken": {"bad": 1, "odd": 1, "big": 1, "seen": 1},
        "samples": {"odd": [11], "big": [11]},
        "nulls": {"speed": 1},
    }


def test_deletes_are_not_asked() -> None:
    definition = ruled({"name": "there", "column": "speed", "required": True}, {"unique": "key", "action": "flag"})
    result = jsonl(definition, {"id": 1, "_deleted": True}, {"id": 2, "speed": 1.0})
    assert rejected(result) == {}
    assert result.verdict.quality is not None
    assert result.verdict.quality["rows"] == 1
    assert len(result.keys["unique"]) == 1


def test_keys_of_an_import_are_hashed_sorted_and_the_same_everywhere() -> None:
    definition = ruled({"name": "u", "unique": ["note"]})
    first, second = (
        csv(definition, "1,,b\n2,,a\n", "id", "speed", "note"),
        csv(definition, "9,,a\n", "id", "speed", "note"),
    )
    assert len(np.intersect1d(first.keys["u"], second.keys["u"])) == 1
    assert (np.diff(first.keys["u"].astype(np.float64)) >= 0).all()


def test_a_pattern_takes_linear_time() -> None:
    assert broken({"note": "a" * 50_000 + "!"}, rule={"column": "note", "matches": "^(a+)+$"}) == [1]


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"column": "nope", "min": 1}, "no column"),
        ({"column": "speed", "matches": "x"}, "pattern of 'speed'"),
        ({"column": "note", "matches": "(?=x)"}, "not understood"),
        ({"column": "note", "max_age_seconds": 1}, "fresh of 'note'"),
        ({"column": "speed", "min": "fast"}, "no number"),
        ({"column": "day", "min": "soon"}, "no date"),
        ({"column": "speed", "min": 5, "max": 1}, "from 5 to 1"),
        ({"check": "speed"}, "neither true nor false"),
        ({"check": "speed > 'x'"}, "number and text"),
        ({"check": "__import__('os')"}, "no function"),
        ({"check": "speed > nope"}, "no column"),
        ({"check": "speed >"}, "cannot be read"),
    ],
)
def test_rules_that_do_not_fit_their_table_are_refused(rule: dict[str, Any], says: str) -> None:
    with pytest.raises(Invalid, match=says):
        ruled(rule)


_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "speed": st.one_of(st.none(), st.floats(-1e300, 1e300)),
            "note": st.one_of(st.none(), st.text("ab'é ", max_size=4)),
            "price": st.one_of(st.none(), st.integers(-(10**9), 10**9).map(lambda cents: f"{cents / 100:.2f}")),
        }
    ),
    min_size=2,
    max_size=8,
)
_CHECKS = [
    "id + id > id", "id * id * id >= id", "-id <= abs(id)", "price * id > speed", "price / (id - id) > 1",
    "id in (1, 2.5, 1e40)",
    "length(trim(note)) < 2 or note is null", "coalesce(speed, 0) <= id", "not (price > 1.5 and lower(note) = 'a')",
]  # fmt: skip


@examples(60)
@given(_ROWS, st.sampled_from(_CHECKS))
def test_a_rows_verdict_does_not_depend_on_its_neighbours(rows: list[dict[str, Any]], check: str) -> None:
    definition = ruled({"name": "r", "check": check})
    together = rejected(jsonl(definition, *rows))
    alone = [number for number, row in enumerate(rows, 1) if rejected(jsonl(definition, row))]
    assert sorted(together) == alone
