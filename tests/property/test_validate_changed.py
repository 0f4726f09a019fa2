"""Deletes, rescued fields and former names: a row's verdict is its own, whatever rows it comes with."""

import csv as writing
import io
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millrace.model.chunk import TextLayout
from millrace.validate.judge import JudgedChunk
from tests.support.chunks import column, judged, table
from tests.support.examples import examples

DEFINITION = table(
    column("id", "int", aliases=["former"]),
    column("n", ["null", "int"], default=None),
    column("d", "string", default="given"),
    key=("id",),
    unknown_fields="rescue",
)
MARKS = st.sampled_from([True, False, None, "t", "f", "1", "0", "", "no", 1, 0, 2, []])
ANY = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.none() | st.booleans(), max_size=2)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(0, 5) | ANY,
        "former": st.integers(0, 5) | ANY,
        "n": ANY,
        "d": ANY,
        "_deleted": MARKS,
        "x": ANY,
        "_rescued": ANY,
    },
)
CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=4)
LINES = st.tuples(st.sampled_from(["1", "2", "x", ""]), CELLS, CELLS, st.sampled_from(["true", "0", "", "?"]))


def outcome(result: JudgedChunk) -> list[tuple[int, Any]]:
    """What became of each row, by its number."""
    rows = [(row.pop("_row"), {"_deleted": False, **row}) for row in result.accepted.to_pylist()]
    if result.rejected is not None:
        rows += [(row["row"], row["reasons"]) for row in result.rejected.to_pylist()]
    return sorted(rows, key=lambda row: row[0])


def written(rows: list[tuple[str, ...]]) -> bytes:
    text = io.StringIO()
    writing.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


@examples(150)
@given(st.lists(OBJECTS, min_size=1, max_size=6))
def test_json_rows(objects: list[dict[str, Any]]) -> None:
    lines = [json.dumps(given).encode() + b"\n" for given in objects]
    together = outcome(judged(DEFINITION, "jsonl", b"".join(lines), len(lines), first_line=0))
    alone = [outcome(judged(DEFINITION, "jsonl", line, 1, row_numbers=(at,)))[0] for at, line in enumerate(lines, 1)]
    assert together == alone
    for row, (_, fate) in zip(objects, together, strict=True):
        if isinstance(fate, dict) and not fate["_deleted"]:
            kept = json.loads(fate["_rescued"] or "{}")
            known = {"id", "n", "d", "_deleted", *(() if "id" in row else ("former",))}
            assert kept == {name: value for name, value in row.items() if name not in known and value is not None}


@examples(150)
@given(st.lists(LINES, min_size=1, max_size=6))
def test_csv_rows(rows: list[tuple[str, ...]]) -> None:
    layout = TextLayout(("former", "x", "n", "_deleted"), ",", '"', "")
    together = outcome(judged(DEFINITION, "csv", written(rows), len(rows), layout=layout))
    alone = [
        outcome(judged(DEFINITION, "csv", written([row]), 1, layout=layout, row_numbers=(at,)))[0]
        for at, row in enumerate(rows, 1)
    ]
    assert together == alone
    for (key, strange, _, mark), (_, fate) in zip(rows, together, strict=True):
        if isinstance(fate, dict):
            assert fate["id"] == int(key)
            assert fate["_deleted"] == (mark == "true")
            kept = {"x": strange} if strange and mark != "true" else {}
            assert json.loads(fate["_rescued"] or "{}") == kept
