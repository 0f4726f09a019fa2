"""Declarations: seed 002's documents as they stand, and what is refused with a remedy."""

import copy
import functools
import json
import operator
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.arrow.types import arrow_type, stored_schema
from millrace.declare.table import parse_table
from millrace.exchange.home import Home
from millrace.model.agreement import parse_agreement
from millrace.model.columns import parse_columns
from millrace.model.errors import Invalid
from millrace.model.names import checked_name, is_import_id, new_id
from millrace.model.table import Definition, define

EXAMPLES = Path(__file__).parents[2] / "examples"


def declaration(**changes: Any) -> dict[str, Any]:
    fields = [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}]
    return {"schema": {"type": "record", "name": "notes", "fields": fields}, "primary_key": ["id"], **changes}


def record(*fields: dict[str, Any], name: str = "t") -> dict[str, Any]:
    return declaration(schema={"type": "record", "name": name, "fields": list(fields)}, primary_key=[])


def typed(avro: Any) -> dict[str, Any]:
    return {"name": "a", "type": avro}


RECORD_OF_TWO = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}, {"name": "X", "type": "int"}]}


def inner(*fields: Any) -> dict[str, Any]:
    return record({"name": "r", "type": ["null", {"type": "record", "name": "R", "fields": list(fields)}]})


def test_seed_documents_are_taken_as_they_stand() -> None:
    table = parse_table(json.loads((EXAMPLES / "client_b" / "data_file_configuration.json").read_text()))
    assert table.name == "product_reviews"
    assert table.primary_key == ("product_id", "review_id", "customer_id")
    assert table.csv.header
    assert table.max_file_bytes == 20 << 20
    columns = {column.name: column for column in parse_columns(table.schema)}
    assert arrow_type(columns["review_date"]) == pa.string()
    assert arrow_type(columns["star_rating"]) == pa.int32()
    agreement = json.loads((EXAMPLES / "client_b" / "service_agreement.json").read_text())
    assert parse_agreement(agreement)[0].tenant == "client_b"


def test_a_definition_survives_its_file_and_is_named_by_what_it_says() -> None:
    one = define("acme", parse_table(declaration()), 1)
    assert Definition.from_json(one.to_json()) == one
    assert define("acme", parse_table(declaration()), 2).fingerprint != one.fingerprint
    assert define("other", parse_table(declaration()), 1).fingerprint != one.fingerprint


def test_every_avro_type_has_a_place_in_the_sinks() -> None:
    fields = [
        {"name": "a", "type": "boolean"},
        {"name": "b", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "c", "type": {"type": "fixed", "name": "F", "size": 4}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "e", "type": {"type": "int", "logicalType": "date"}},
        {"name": "f", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "g", "type": {"type": "array", "items": ["null", "int"]}},
        {"name": "h", "type": {"type": "map", "values": "double"}},
        {"name": "i", "type": ["null", {"type": "record", "name": "R", "fields": [{"name": "x", "type": "float"}]}]},
    ]
    schema = stored_schema(parse_columns({"type": "record", "name": "t", "fields": fields}))
    assert schema.field("d").type == pa.decimal128(10, 2)
    assert schema.field("g").type == pa.list_(pa.field("element", pa.int32(), True))
    assert schema.field("i").nullable
    assert schema.names[-3:] == ["_version", "_import", "_row"]


@pytest.mark.parametrize(
    ("document", "word"),
    [
        (declaration(primary_key=["nope"]), "nope"),
        (declaration(unknown_thing=1), "unknown_thing"),
        (declaration(file_type="xlsx"), "xlsx"),
        (declaration(max_file_size_mb="lots"), "lots"),
        (declaration(csv={"delimiter": ";;"}), ";;"),
        (declaration(csv={"delimiter": '"'}), "both"),
        (declaration(sinks=[]), "sinks"),
        (declaration(sinks=["delta", {"kind": "delta"}]), "delta"),
        (declaration(sinks=[{"name": "nameless"}]), "nameless"),
        (declaration(schema={"type": "array"}), "record"),
        (record({"name": "a", "type": "int"}, name="../x"), "../x"),
        (record({"name": "a", "type": ["int", "string"]}), "union"),
        (record({"name": "_version", "type": "int"}), "_version"),
        (
            record({"name": "a", "type": "int"}, {"name": "A", "type": "int"}),
            "'A' is declared twice; names that differ only in",
        ),
        (inner({"name": "x", "type": "int"}, {"name": "x", "type": "int"}), "'r.x'"),
        (inner({"name": "x", "type": "int"}, {"name": "X", "type": "int"}), "'r.X'"),
        (record(typed({"type": "map", "values": RECORD_OF_TWO})), "'a.X'"),
        (inner({"name": "x\0", "type": "int"}), "'x\\x00' in column 'r'"),
        (inner({"name": 5, "type": "int"}), "in column 'r'"),
        (inner(5), "5 in column 'r'"),
        (inner({"name": "x", "type": "int", "aliases": 5}), "aliases of 'x'"),
        (record(typed({"type": "int", "logicalType": ["x"]})), "logicalType of column 'a'"),
        (record(typed({"type": {"type": "int"}, "logicalType": {"x": 1}})), "logicalType of column 'a'"),
        (record(typed({"type": "bytes", "logicalType": "decimal", "precision": True})), "decimal(True,0)"),
        (record(typed({"type": "fixed", "name": "F", "size": True})), "without a size"),
        (record(typed({"type": "enum", "name": "E", "symbols": []})), "without symbols"),
        (record(typed({"type": "enum", "name": "E", "symbols": ["X", "Y", "X"]})), "twice"),
        (record({"name": "a\ud800", "type": "int"}), "\\ud800"),
        (declaration(name="a\ud800"), "\\ud800"),
        (declaration(primary_key=[{"a": 1}]), "primary_key holds {'a': 1}"),
        (declaration(primary_key=[[["id"]]]), "primary_key holds ['id']"),
    ],
)
def test_bad_declarations_are_refused_by_name(document: dict[str, Any], word: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_table(document)
    assert word in str(refused.value)


def test_a_field_of_a_record_may_have_a_name_that_no_column_may_have() -> None:
    assert parse_table(inner({"name": "_version", "type": "int"}))


ODD_VALUES = (
    None, True, -1, 1.5, 10**30, "", "x", "id", "null", "decimal", "a\0", "a\ud800", [], [5], [[["id"]]], ["null", "null"],
    {}, {"a": 1}, {"type": {"type": "int"}}, {"name": 5, "type": "int"}, {"type": ["x"]},
)  # fmt: skip
WORDS = ("type", "logicalType", "aliases", "default", "precision", "scale", "size", "symbols", "fields", "items")
EVERYTHING = declaration(
    schema={
        "type": "record",
        "name": "notes",
        "fields": [
            {"name": "id", "type": "long", "default": 1, "aliases": ["number"]},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "default": "A"},
            {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "t", "type": {"type": "array", "items": ["null", {"type": "fixed", "name": "F", "size": 4}]}},
            {
                "name": "r",
                "type": ["null", {**RECORD_OF_TWO, "fields": [{"name": "x", "type": "float", "default": 1}]}],
            },
        ],
    },
    csv={"header": True, "encoding": "utf-8"},
    sinks=["delta", {"kind": "postgres", "name": "warehouse"}],
    rules=[{"column": "id", "min": 0, "max": 9}, {"check": "id > 3"}, {"rows": {"min": 1, "max_percent": 5}}],
)


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to everything inside a JSON value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (*way, key)
        yield from places(part, (*way, key))


def spoil(document: Any, chance: random.Random) -> None:
    *way, last = chance.choice(list(places(document)))
    holder = functools.reduce(operator.getitem, way, document)
    if isinstance(holder, dict) and chance.random() < 0.3:
        last = chance.choice(WORDS)
    holder[last] = copy.deepcopy(chance.choice(ODD_VALUES))


def test_spoiled_declarations_are_refused_or_can_be_kept_and_shown() -> None:
    chance, kept = random.Random(1), 0
    for _ in range(1000):
        document = copy.deepcopy(EVERYTHING)
        for _ in range(chance.choice((1, 1, 2))):
            spoil(document, chance)
        try:
            table = parse_table(document)
        except Invalid as refused:
            str(refused).encode()
            continue
        kept += 1
        columns = define("acme", table, 1).columns
        assert [(column.kind, column.logical) for column in columns]
        assert json.dumps(table.to_dict(), ensure_ascii=False).encode()
    assert 0 < kept < 1000


@given(st.text(max_size=300))
def test_no_name_leaves_its_folder(name: str) -> None:
    home = Home(Path("/somewhere"))
    try:
        checked = checked_name("tenant", name)
    except Invalid:
        return
    assert home.table(checked, checked).parent.parent == home.lake
    assert len(checked) <= 63


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a\x00", "a" * 300, "é", "-a", ".a", "a b", "a\n", None, 7])
def test_hostile_names_are_refused(name: object) -> None:
    with pytest.raises(Invalid):
        checked_name("table", name)


def test_ids_are_ordered_by_time_and_recognised() -> None:
    first, second = new_id("imp"), new_id("imp")
    assert first != second
    assert first[:12] <= second[:12]
    assert is_import_id(first)
    assert not is_import_id(first + "x")
    assert not is_import_id("imp_../../../../etc/passwd1234")
