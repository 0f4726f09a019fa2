"""Names of columns: what readers differ about is refused with what to write instead, and tables that have it go on."""

from typing import Any

import pytest

from millrace.model.column_names import is_safe, refuse_unsafe
from millrace.model.columns import Column, parse_columns
from millrace.model.errors import Invalid


def columns(*fields: Any) -> tuple[Column, ...]:
    named = [{"name": field, "type": "int"} if isinstance(field, str) else field for field in fields]
    return parse_columns({"type": "record", "name": "t", "fields": named})


@pytest.mark.parametrize("name", ["id", "Order_No", "order-no", "_x", "2024", "a" * 255])
def test_names_that_every_reader_takes(name: str) -> None:
    assert is_safe(name)
    refuse_unsafe(columns(name))


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("Order no.", "order_no"), ("Größe", "groesse"), ("a.b", "a_b"), ("a,b", "a_b"), ("price (EUR)", "price_eur"),
        ("x=1", "x_1"), ("a`b", "a_b"), ("价格", "column_2"), ("1st half", "_1st_half"), ("tab\u00a0s", "tab_s"),
    ],
)  # fmt: skip
def test_other_names_are_refused_with_a_field_to_paste(name: str, plain: str) -> None:
    with pytest.raises(Invalid) as refused:
        refuse_unsafe(columns("id", name))
    assert refused.value.code == "unsafe_name"
    assert repr(name) in refused.value.message
    assert f"{{name: {plain}, header: {name!r}, …}}" in refused.value.remedy


def test_a_proposal_is_no_name_that_is_taken() -> None:
    with pytest.raises(Invalid, match="name: order_no_2, header: 'Order no'"):
        refuse_unsafe(columns("order_no", "Order no"))


def test_fields_inside_a_column_keep_their_names_as_aliases() -> None:
    inner = {"type": "record", "name": "r", "fields": [{"name": "first name", "type": "string"}]}
    for nested in (inner, {"type": "array", "items": inner}, {"type": "map", "values": inner}):
        with pytest.raises(Invalid, match=r"'who\.first name'.*name: first_name, aliases: \['first name'\]"):
            refuse_unsafe(columns({"name": "who", "type": nested}))


def test_names_that_the_table_has_already_stay() -> None:
    inner = {"type": "record", "name": "r", "fields": [{"name": "first name", "type": "string"}]}
    known = columns("Order no.", {"name": "who", "type": inner})
    refuse_unsafe(columns("Order no.", {"name": "who", "type": ["null", inner]}, "new"), known)
    with pytest.raises(Invalid, match=r"'Other no\.'"):
        refuse_unsafe(columns("Order no.", "Other no."), known)


def test_many_are_counted() -> None:
    with pytest.raises(Invalid, match="and 7 more"):
        refuse_unsafe(columns(*(f"no {number}" for number in range(10))))
