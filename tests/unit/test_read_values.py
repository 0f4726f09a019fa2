"""Values of a query's rows as JSON."""

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from millrace.read.plain_values import RowEncoder, plain


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (2**63 - 1, 2**63 - 1),
        (2**63, str(2**63)),
        (-(2**127), str(-(2**127))),
        (1.5, 1.5),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (Decimal("1E+3"), "1000"),
        (Decimal("-0.10"), "-0.10"),
        (date(2024, 2, 29), "2024-02-29"),
        (time(1, 2, 3, 4), "01:02:03.000004"),
        (datetime(2024, 1, 1, tzinfo=UTC), "2024-01-01T00:00:00+00:00"),
        (timedelta(days=1, seconds=2, microseconds=3), "P1DT2.000003S"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\xff\x00", "/wA="),
        ([Decimal("1.0"), [float("inf")]], ["1.0", ["Infinity"]]),
        ({1: b"a", "x": None}, {"1": "YQ==", "x": None}),
        ({date(2024, 1, 1): 1}, {"2024-01-01": 1}),
    ],
)
def test_a_value_as_json(value: object, shown: object) -> None:
    assert plain(value) == shown
    assert json.loads(RowEncoder(["ANY"]).encode([value])) == [shown]


def test_half_a_surrogate_pair_does_not_break_the_answer() -> None:
    assert json.loads(RowEncoder(["VARCHAR"]).encode(["a\ud800b"])) == ["a?b"]
