"""Whatever expression is taken for a table can be computed for its rows: no value of theirs may end their judge."""

from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millrace.arrow.types import arrow_type
from millrace.declare.expression_types import NULL, TRUTH, kind_of, kind_of_column
from millrace.model.columns import parse_columns
from millrace.model.errors import Invalid
from millrace.model.expressions import COMPARISONS, parse_expression
from millrace.validate.expressions import evaluate
from tests.support.examples import examples

COLUMNS = parse_columns(
    {
        "type": "record",
        "name": "t",
        "fields": [
            {"name": "a", "type": "int"},
            {"name": "b", "type": "long"},
            {"name": "d", "type": "double"},
            {"name": "m", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 20}},
            {"name": "s", "type": "string"},
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "f", "type": "boolean"},
        ],
    }
)
KINDS = {column.name: kind_of_column(column) for column in COLUMNS}
VALUES = {
    "a": [2**31 - 1, -(2**31), None],
    "b": [2**63 - 1, -(2**63), None],
    "d": [float("nan"), float("-inf"), 1e308],
    "m": [Decimal("999999999999999999.99999999999999999999"), Decimal(0), None],
    "s": ["", "É" * 50, None],
    "t": [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC), None],
    "day": [date(1, 1, 1), date(9999, 12, 31), None],
    "f": [True, False, None],
}
ROWS = {column.name: pa.array(VALUES[column.name], arrow_type(column)) for column in COLUMNS}
LITERALS = (
    "0", "1", "2.5", ".5", "1e40", "99999999999999999999", "123456789012345678901234567890123456789012345", "'x'", "''",
    "'2024-01-01'", "'2024-01-01T00:00:00+02:00'", "true", "false", "null",
)  # fmt: skip
FUNCTIONS = ("length", "lower", "upper", "trim", "abs")
SEARCHES = ("starts_with", "ends_with", "contains", "matches")


def written(chance: Random, depth: int) -> str:
    """Some expression; most of them mean nothing."""
    if depth == 0 or chance.random() < 0.25:
        return chance.choice([chance.choice(LITERALS), *chance.choices(list(KINDS), k=2)])
    one, other = written(chance, depth - 1), written(chance, depth - 1)
    return chance.choice(
        [
            f"({one} {chance.choice(COMPARISONS)} {other})",
            f"({one} {chance.choice('+-*/')} {other})",
            f"({one} {chance.choice(('and', 'or'))} {other})",
            f"(not {one})",
            f"({one} is {chance.choice(('', 'not '))}null)",
            f"({one} in ({chance.choice(LITERALS)}, {chance.choice(LITERALS)}))",
            f"(-{one})",
            f"{chance.choice(FUNCTIONS)}({one})",
            f"coalesce({one}, {other})",
            f"{chance.choice(SEARCHES)}({one}, {chance.choice(LITERALS)})",
        ]
    )


@examples(40)
@given(st.integers(0, 2**32))
def test_what_is_taken_can_be_computed(seed: int) -> None:
    chance = Random(seed)
    for text in (written(chance, chance.randint(1, 4)) for _ in range(100)):
        try:
            expression = parse_expression(text)
            if kind_of(expression, KINDS) not in (TRUTH, NULL):
                continue
        except Invalid:
            continue
        for rows in (ROWS, {name: values[:0] for name, values in ROWS.items()}):
            found = evaluate(expression, rows)
            found = pa.repeat(found, 3) if isinstance(found, pa.Scalar) else found
            assert pa.types.is_boolean(found.cast(pa.bool_()).type), text
