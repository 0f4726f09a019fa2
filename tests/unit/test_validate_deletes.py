"""Deletes: whole chunks of keys and rows that say so themselves, and which row numbers verdicts speak of."""

from typing import Any

import pyarrow as pa
import pytest

from millrace.arrow.types import stored_schema
from millrace.model.table import Definition
from millrace.validate.judge import JudgedChunk
from tests.support.chunks import arrow, avro, column, csv, jsonl, reasons, table

FIELDS = [column("id", "int"), column("n", "int"), column("deep", {"type": "array", "items": "int"})]


def keyed(**more: Any) -> Definition:
    return table(*FIELDS, key=("id",), **more)


def kept(result: JudgedChunk) -> list[tuple[Any, ...]]:
    """(id, n, deep, deleted) of every accepted row."""
    rows = result.accepted.to_pylist()
    return [(row["id"], row["n"], row["deep"], row.get("_deleted")) for row in rows]


def test_rows_of_a_delete_chunk_are_looked_at_for_their_key_alone() -> None:
    result = csv(keyed(), "1,x,nonsense\n,2,[1]\nq,3,[2]\n", deletes=True)
    assert kept(result) == [(1, None, None, True)]
    assert reasons(result) == [[("id", "primary_key")], [("id", "type")]]


def test_a_delete_chunk_needs_no_other_columns_and_minds_no_unknown_ones() -> None:
    definition = keyed()
    assert kept(csv(definition, "7\n", "id", deletes=True)) == [(7, None, None, True)]
    assert kept(csv(definition, "a,7\n", "strange", "id", deletes=True)) == [(7, None, None, True)]
    assert kept(jsonl(definition, {"id": 7, "strange": 1, "_deleted": "?"}, deletes=True)) == [(7, None, None, True)]
    assert kept(arrow(definition, pa.table({"id": [7], "x": ["a"]}), deletes=True)) == [(7, None, None, True)]
    assert kept(avro(definition, [column("id", "int")], {"id": 7}, deletes=True)) == [(7, None, None, True)]


def test_deleted_rows_have_their_own_columns_and_a_last_one() -> None:
    definition = keyed()
    accepted = csv(definition, "7\n", "id", deletes=True, first_row=40).accepted
    assert accepted.schema.names == [*stored_schema(definition.columns).names, "_deleted"]
    assert accepted.schema.types == [*stored_schema(definition.columns).types, pa.bool_()]
    (row,) = accepted.to_pylist()
    assert (row["_version"], row["_import"], row["_row"]) == (77, "imp_1", 40)


def test_without_deletes_there_is_no_such_column() -> None:
    definition = keyed()
    result = csv(definition, "1,2,[1],false\n", "id", "n", "deep", "_deleted")
    assert result.accepted.schema == stored_schema(definition.columns)


@pytest.mark.parametrize("text", ["true", "TRUE", "t", "1", " true "])
def test_a_csv_row_can_delete_itself(text: str) -> None:
    lines = f"1,5,[1],\n2,bad,worse,{text}\n3,6,[2],false\n4,7,[3],0\n5,8,[4],F\n"
    result = csv(keyed(), lines, "id", "n", "deep", "_deleted")
    assert result.rejected is None
    assert kept(result) == [
        (1, 5, [1], False), (2, None, None, True), (3, 6, [2], False), (4, 7, [3], False), (5, 8, [4], False),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["yes", "maybe", "2", "tru\xe9", '"true,"'])
def test_a_mark_that_says_neither_is_a_reason(text: str) -> None:
    result = csv(keyed(), f"1,2,[1],{text}\n", "id", "n", "deep", "_deleted")
    assert reasons(result) == [[("_deleted", "type")]]


def test_a_mark_that_is_no_utf8_is_a_reason_like_any_other() -> None:
    result = csv(keyed(), "1,2,[1],\udcff\n".encode("utf-8", "surrogateescape").decode("latin-1"), *"abc", "_deleted")
    assert ("_deleted", "type") in reasons(result)[0]


def test_a_delete_needs_a_valid_key() -> None:
    result = csv(keyed(), "x,2,[1],true\n,2,[1],true\n", "id", "n", "deep", "_deleted")
    assert reasons(result) == [[("id", "type")], [("id", "primary_key")]]


def test_deletes_and_upserts_good_and_bad_in_one_chunk() -> None:
    lines = "1,bad,[1],false\n2\n3,bad,[1],true\n4,5,[1],\nx,5,[1],true\n6,bad,[1],t\n7,8,[1],0\n"
    result = csv(keyed(), lines, "id", "n", "deep", "_deleted")
    assert kept(result) == [(3, None, None, True), (4, 5, [1], False), (6, None, None, True), (7, 8, [1], False)]
    assert result.accepted["_row"].to_pylist() == [3, 4, 6, 7]
    assert result.rejected is not None
    assert result.rejected["row"].to_pylist() == [1, 2, 5]
    assert reasons(result) == [[("n", "type")], [(None, "columns")], [("id", "type")]]


def test_a_delete_with_too_few_cells_is_none() -> None:
    assert reasons(csv(keyed(), "1,true\n", "id", "n", "deep", "_deleted")) == [[(None, "columns")]]


def test_a_json_row_can_delete_itself() -> None:
    result = jsonl(
        keyed(),
        {"id": 1, "n": 5, "deep": []},
        {"id": 2, "_deleted": True},
        {"id": 3, "_deleted": "t", "n": "x", "strange": 1},
        {"id": 4, "n": 6, "deep": [], "_deleted": None},
        {"id": 5, "n": 6, "deep": [], "_deleted": 0},
        {"id": 6, "n": 6, "deep": [], "_deleted": []},
        {"id": None, "_deleted": True},
        "not json",
    )
    assert kept(result) == [
        (1, 5, [], False), (2, None, None, True), (3, None, None, True), (4, 6, [], False), (5, 6, [], False),
    ]  # fmt: skip
    assert reasons(result) == [[("_deleted", "type")], [("id", "primary_key")], [(None, "json")]]


def test_arrow_and_avro_rows_can_delete_themselves() -> None:
    rows = pa.table(
        {"id": [1, 2, 3], "n": [5, None, 7], "deep": pa.array([[1], None, [2]]), "_deleted": [False, True, None]}
    )
    expected = [(1, 5, [1], False), (2, None, None, True), (3, 7, [2], False)]
    assert kept(arrow(keyed(), rows)) == expected
    texts = rows.set_column(3, "_deleted", pa.array(["f", "t", None]).dictionary_encode())
    assert kept(arrow(keyed(), texts)) == expected
    numbers = rows.set_column(3, "_deleted", pa.array([0, 1, 2], pa.int8()))
    assert reasons(arrow(keyed(), numbers)) == [[("_deleted", "type")]]
    fields = [
        column("id", "int"),
        column("n", ["null", "int"]),
        column("deep", ["null", FIELDS[2]["type"]]),
        column("_deleted", ["null", "boolean"]),
    ]
    assert kept(avro(keyed(), fields, *rows.to_pylist())) == expected


def test_a_table_without_a_key_has_nothing_to_delete_by() -> None:
    keyless = table(*FIELDS)
    assert reasons(csv(keyless, "1,2,[1]\nx,y,z\n", deletes=True)) == [[(None, "no_key")]] * 2
    result = csv(keyless, "1,2,[1],true\n2,2,[1],false\n", "id", "n", "deep", "_deleted")
    assert reasons(result) == [[(None, "no_key")]]
    assert result.accepted.schema == stored_schema(keyless.columns)
    assert reasons(jsonl(keyless, {"id": 1, "_deleted": True})) == [[(None, "no_key")]]
    assert reasons(jsonl(keyless, {"id": 1}, "no", deletes=True)) == [[(None, "no_key")], [(None, "json")]]


def test_a_key_of_several_columns_is_wanted_whole() -> None:
    definition = table(column("a", "int"), column("v", "string"), column("b", "string"), key=("b", "a"))
    result = csv(definition, "x,1\ny,\n", "b", "a", deletes=True)
    assert [(row["a"], row["b"], row["v"]) for row in result.accepted.to_pylist()] == [(1, "x", None)]
    assert reasons(result) == [[("a", "primary_key")]]


def test_rows_picked_from_a_file_keep_their_numbers() -> None:
    definition = table(column("id", "int"), key=("id",))
    result = csv(definition, "1\nx\n3\n", row_numbers=(4, 90, 1000), first_row=4, first_line=0)
    assert result.accepted["_row"].to_pylist() == [4, 1000]
    assert result.rejected is not None
    assert (result.rejected["row"].to_pylist(), result.rejected["line"].to_pylist()) == ([90], [0])
    picked = jsonl(definition, "{", {"id": 2}, row_numbers=(9, 5))
    assert picked.accepted["_row"].to_pylist() == [5]
    assert picked.rejected is not None
    assert picked.rejected["row"].to_pylist() == [9]


def test_a_stamp_must_number_every_row() -> None:
    result = csv(table(column("id", "int")), "1\n2\n", row_numbers=(4,))
    assert result.verdict.failure == "The chunk's stamp numbers 1 rows of 2."
    assert result.rejected is not None
    assert result.rejected["row"].to_pylist() == [4]
