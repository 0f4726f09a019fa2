"""A file format is one record: whoever registers one can import, judge, infer and replay it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millrace.api.jobs.rejected_rows import Piece, chunk_of
from millrace.client.file_options import AS_DECLARED
from millrace.declare.json_schemas import table_schema
from millrace.declare.table import parse_table
from millrace.formats.cut import UploadOptions
from millrace.infer.proposing import propose
from millrace.infer.trial import Bounds, try_file
from millrace.model import formats
from millrace.model.imports import PROCESSING, Import
from millrace.model.table import Definition, define
from millrace.validate.judge import judge

ROWS = b"id:1\tname:Ann\nid:2\tname:Bob\nid:x\tname:Cid\n"
SCHEMA = {
    "type": "record",
    "name": "people",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}],
}


@pytest.fixture
def ltsv(monkeypatch: pytest.MonkeyPatch) -> formats.Format:
    monkeypatch.setattr(formats, "_formats", dict(formats._formats))
    paths = (f"tests.support.ltsv:{name}" for name in ("cutter", "parse", "draft"))
    formats.register(formats.Format("ltsv", "LTSV", *paths, (".ltsv",), is_text=True, is_replayable=True))
    return formats.every_format()[-1]


def table(schema: dict[str, Any] = SCHEMA) -> Definition:
    return define("acme", parse_table({"schema": schema, "file_type": "ltsv"}), 1)


def test_every_path_of_every_record_leads_somewhere() -> None:
    for each in formats.every_format():
        for path in filter(None, (each.cutter, each.parser, each.drafter, each.recogniser, each.observer)):
            assert callable(formats.load(path)), path


def test_a_new_format_is_cut_and_judged(ltsv: formats.Format) -> None:
    trial = try_file([ROWS[:20], ROWS[20:]], table(), UploadOptions(), Bounds())
    assert (trial.tally.read, trial.tally.failed) == (3, 1)
    [reason] = trial.tally.reasons
    assert (reason.column, reason.examples[0].row, reason.examples[0].line) == ("id", 3, 3)


def test_a_new_format_is_declared_named_by_its_suffix_and_in_the_json_schema(ltsv: formats.Format) -> None:
    assert table().table.file_type == "ltsv"
    assert AS_DECLARED.for_file("people.ltsv.gz").format == "ltsv"
    assert '"ltsv"' in json.dumps(table_schema({}))


def test_a_new_format_is_inferred(ltsv: formats.Format, tmp_path: Path) -> None:
    path = tmp_path / "people.ltsv"
    path.write_bytes(ROWS.replace(b"id:x", b"id:3"))
    proposal = propose(path)
    assert proposal.document["file_type"] == "ltsv"
    assert [(field["name"], field["type"]) for field in proposal.document["schema"]["fields"]] == [
        ("id", "int"),
        ("name", "string"),
    ]
    assert (proposal.checked.rows, proposal.checked.failed) == (3, 0)


def test_rejected_rows_of_a_new_format_are_replayed(ltsv: formats.Format) -> None:
    """The rejected row passes after its column became text."""
    definition = table()
    origin = Import(
        "i",
        "acme",
        "people",
        definition.fingerprint,
        PROCESSING,
        7,
        1,
        ("delta",),
        0,
        {"written": {"encoding": "ltsv"}},
    )
    first, body = chunk_of(origin, origin, definition, Piece(0, (1, 2, 3), tuple(ROWS.splitlines())))
    rejected = judge(first, body, definition).rejected
    assert rejected is not None
    piece = Piece(0, tuple(rejected["row"].to_pylist()), tuple(rejected["raw"].to_pylist()))
    assert piece == Piece(0, (3,), (b"id:x\tname:Cid",))
    came_as = formats.format_of_chunks(origin.written["encoding"])
    assert came_as is not None
    assert came_as.is_replayable
    text = {**SCHEMA, "fields": [{"name": "id", "type": "string"}, {"name": "name", "type": "string"}]}
    again, body = chunk_of(replace(origin, id="again"), origin, table(text), piece)
    judged = judge(again, body, table(text))
    assert judged.rejected is None
    assert judged.accepted.select(["id", "name", "_row"]).to_pylist() == [{"id": "x", "name": "Cid", "_row": 3}]
