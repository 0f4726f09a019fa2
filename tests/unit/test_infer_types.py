"""The narrowest type that takes every cell, and what a whole file of such cells is proposed to be."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from millrace.infer.avro import shown_type
from millrace.infer.evidence import Evidence, bytes_evidence, fitting, text_evidence
from millrace.infer.json_shape import looked_at, shape_of
from millrace.infer.proposing import propose


def fits(*cells: str | None) -> list[str]:
    return [shown_type(avro) for avro in fitting(text_evidence(pa.array(cells, pa.string())))]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["0", "1", "-2147483648"], ["int", "string"]),
        (["2147483648"], ["long", "string"]),
        (["9223372036854775808", "5"], ["decimal(19,0)", "string"]),
        (["222277164261810113020", "1"], ["decimal(21,0)", "string"]),
        (["9" * 38], ["decimal(38,0)", "string"]),
        (["9" * 39], ["string"]),
        (["1.5", "20"], ["float", "decimal(3,1)", "string"]),
        (["0.5"], ["float", "decimal(1,1)", "string"]),
        (["1234567.25"], ["double", "decimal(9,2)", "string"]),
        (["1.0000000000000000"], ["double", "decimal(17,16)", "string"]),
        (["0.1234567890123456789"], ["decimal(19,19)", "string"]),
        (["1e5", "2"], ["double", "string"]),
        (["nan", "inf", "-1"], ["double", "string"]),
        (["1e400"], ["string"]),
        (["1e300"], ["double", "string"]),
        (["007"], ["string"]),
        (["-07"], ["string"]),
        (["+4930"], ["string"]),
        ([" 7 "], ["int", "string"]),
        (["0x1f"], ["string"]),
        (["true", "FALSE"], ["boolean", "string"]),
        (["y", "n"], ["boolean", "string"]),
        (["n", "n"], ["string"]),
        (["1", "true"], ["boolean", "string"]),
        (["2024-02-29"], ["date", "string"]),
        (["2023-02-29"], ["string"]),
        (["2024-01-01T00:00:00Z", "2024-01-01 00:00:00.5"], ["timestamp-micros", "string"]),
        (["12:30:00.250"], ["time-millis", "string"]),
        (["12:30:00.250001"], ["time-micros", "string"]),
        (["6fa459ea-ee8a-3ca4-894e-db77e160355e"], ["uuid", "string"]),
        (["2024-01-01", "7"], ["string"]),
        (["a\0b"], ["bytes"]),
        ([None], []),
    ],
)
def test_the_narrowest_type_comes_first(cells: list[str | None], expected: list[str]) -> None:
    assert fits(*cells) == expected
    assert fits(*cells, None) == expected


def test_a_cell_far_behind_counts_like_the_first() -> None:
    assert fits(*["5"] * 1000, "x") == ["string"]
    assert fits(*["5"] * 1000, "2.5") == ["float", "decimal(2,1)", "string"]


@pytest.mark.parametrize(
    "cells",
    [
        ["1", "2.5"],
        ["1", "x"],
        ["2024-01-01", "1"],
        ["1", "true"],
        ["7", "007"],
        ["007", "7"],
        ["1", "3000000000"],
        ["1e5", "1"],
    ],
)
def test_pieces_add_up_to_the_whole(cells: list[str]) -> None:
    added = Evidence()
    for cell in cells:
        added = added.merged(text_evidence(pa.array([cell, None]), added.fits))
    assert fitting(added) == fitting(text_evidence(pa.array(cells)))
    assert (added.cells, added.nulls) == (len(cells), len(cells))


def test_broken_text_fits_bytes_alone() -> None:
    assert fitting(bytes_evidence(pa.array([b"ok", b"\xff"]))) == ("bytes",)


def json_fits(*texts: str) -> list[str]:
    body = "\n".join(f'{{"v": {text}}}' for text in texts).encode()
    _, shape = looked_at(body, lambda objects: shape_of([each.get("v") for each in objects]))
    return [shown_type(avro) for avro in fitting(shape.scalar)]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "null"], ["int"]),
        (["1", "3000000000"], ["long"]),
        (["222277164261810113020"], ["decimal(21,0)"]),
        (["1", "2.5"], ["float", "decimal(2,1)"]),
        (["222277164261810113020", "2.5"], ["decimal(22,1)"]),
        (["true"], ["boolean"]),
        (['"7"'], ["string"]),
        (['"7"', "8"], ["decimal(1,0)"]),
        (['"x"', "8"], []),
        (["true", "1"], []),
        (['"2024-01-01"'], ["date", "string"]),
    ],
)
def test_json_is_strict_by_its_types(texts: list[str], expected: list[str]) -> None:
    assert json_fits(*texts) == expected


def test_a_long_number_in_json_keeps_all_its_digits(tmp_path: Path) -> None:
    path = tmp_path / "ids.jsonl"
    path.write_text('{"id": 222277164261810113020, "of": {"deep": [222277164261810113021]}}\n{"id": 7}\n')
    proposal = propose(path)
    identity, of = proposal.document["schema"]["fields"]
    assert identity["type"]["precision"] == 21
    assert shown_type(of["type"][1]["fields"][0]["type"]["items"]) == "decimal(21,0)"
    assert proposal.checked.failed == 0


def test_nested_values_become_records_arrays_and_maps(tmp_path: Path) -> None:
    path = tmp_path / "deep.jsonl"
    rows = [
        {"id": 1, "who": {"name": "a", "age": 3}, "tags": ["x"], "odd": {"": 1}, "none": None, "mixed": 1},
        {"id": 2, "who": {"name": None}, "tags": [], "odd": {}, "none": None, "mixed": "b"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    proposal = propose(path)
    types = {field["name"]: field["type"] for field in proposal.document["schema"]["fields"]}
    assert types["who"]["fields"] == [
        {"name": "name", "type": ["null", "string"]}, {"name": "age", "type": ["null", "int"]},
    ]  # fmt: skip
    assert types["tags"] == {"type": "array", "items": "string"}
    assert types["odd"]["type"] == "map"
    assert types["none"] == ["null", "string"]
    assert "mixed" not in types
    assert list(proposal.checked.draft.left_out) == ["mixed"]
    assert proposal.document["unknown_fields"] == "ignore"
