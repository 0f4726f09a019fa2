"""The what-if itself: what would pass and fail, why, and what would fit; bounded, and the same in a process of its own."""

import asyncio
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace.declare.table import parse_table
from millrace.formats.cut import UploadOptions
from millrace.infer import tally
from millrace.infer.process import what_if
from millrace.infer.trial import Bounds, TrialRun, try_file
from millrace.model.chunk import PREPARE, ChunkHeader, TextLayout
from millrace.model.errors import Invalid
from millrace.model.table import Definition, define
from millrace.wire.envelope import checksum, compress, pack_chunk

EXAMPLE = Path(__file__).parents[2] / "examples" / "client_a" / "data_file_configuration.json"
HEAD = b"PROVINCECODE,DEVICEID,IFINDEX,FRAME,SLOT,PORT,ONUINDEX,ONUID,TIME,SPEEDIN,SPEEDOUT\n"


def table(*fields: tuple[str, Any], **more: Any) -> Definition:
    schema = {"type": "record", "name": "t", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    return define("acme", parse_table({"schema": schema, **more}), 7)


def judged(definition: Definition, body: bytes, **bounds: Any) -> dict[str, Any]:
    return try_file([body], definition, UploadOptions(), Bounds(**bounds)).report()


def reasons(report: dict[str, Any]) -> dict[tuple[str, str | None], int]:
    return {(each["rule"], each["column"]): each["rows"] for each in report["reasons"]}


def fits(report: dict[str, Any]) -> dict[str, list[str]]:
    return {each["column"]: [fit["type"] for fit in each["fits"]] for each in report["columns"]}


def test_long_ids_declared_int_are_told_what_would_fit_them() -> None:
    """The real ONU files behind seed 002."""
    definition = define("client_a", parse_table(json.loads(EXAMPLE.read_text())), 1)
    rows = b"".join(b"1,10.0.0.1,5,0,1,2,3,22227716426181%07d,2024-01-01 00:00:00,1.5,2.5\n" % n for n in range(5000))
    report = judged(definition, HEAD + rows)
    assert report["rows"] == {"read": 5000, "passed": 0, "failed": 5000}
    assert reasons(report) == {("range", "ONUID"): 5000}
    assert fits(report) == {"ONUID": ["decimal(21,0)", "string"]}
    assert report["reasons"][0]["examples"][0] == {
        "row": 1, "line": 2, "value": "222277164261810000000",
        "message": "222277164261810000000 does not fit int (-2147483648 to 2147483647)",
    }  # fmt: skip
    assert report["columns"][0]["fits"][0]["avro"]["precision"] == 21


def test_a_type_must_fit_the_cells_of_all_chunks_also_those_that_passed() -> None:
    definition = table(("id", "int"), ("v", "int"))
    filler = b"".join(b"%d,%d\n" % (n, -123456789 if n == 5 else 100_000) for n in range(200_000))
    report = judged(definition, b"id,v\n" + filler + b"1,0.25\n")
    assert report["chunks"] > 2
    assert reasons(report) == {("type", "v"): 1}
    assert fits(report) == {"v": ["double", "decimal(11,2)"]}
    assert report["reasons"][0]["examples"][0]["line"] == 200_002
    assert report["columns"][0]["advice"] == (
        "is declared int, and 200,000 of 200,001 cells fit: 1 row is bad (line 200,002); "
        "double or decimal(11,2) would take every value"
    )


def test_empty_cells_are_told_from_wrong_ones() -> None:
    report = judged(table(("id", "int"), ("v", "int"), primary_key=["id"]), b"id,v\n1,\n,2\n3,x\n4,5\n")
    assert report["rows"] == {"read": 4, "passed": 1, "failed": 3}
    assert reasons(report) == {("required", "v"): 1, ("primary_key", "id"): 1, ("type", "v"): 1}
    of_id, of_v = report["columns"]
    assert (of_id["nullable"], [fit["type"] for fit in of_id["fits"]]) == (False, ["int"])
    assert "part of the primary key" in of_id["advice"]
    assert (of_v["nullable"], [fit["type"] for fit in of_v["fits"]]) == (True, ["string"])


def test_only_an_empty_cell_leaves_the_type_as_it_is() -> None:
    report = judged(table(("id", "int"), ("v", "double")), b"id,v\n1,\n2,2\n")
    assert (fits(report), report["columns"][0]["nullable"]) == ({"v": ["double"]}, True)


def test_json_and_its_unknown_fields() -> None:
    definition = table(("id", "int"), ("v", "string"), file_type="jsonl")
    body = b'{"id": 222277164261810113020, "v": 1}\n{"id": 1, "v": 2.5, "w": 3}\nnope\n'
    report = judged(definition, body)
    assert report["rows"]["failed"] == 3
    assert reasons(report)[("unknown_field", "w")] == 1
    assert fits(report) == {"id": ["decimal(21,0)"], "v": ["double", "decimal(2,1)"]}


def test_parquet_and_avro_say_their_own_types() -> None:
    definition = table(("id", "int"), ("v", ["null", "int"]), file_type="parquet")
    out = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([1, 2**40]), "v": [1.0, 2.5]}), out)
    assert fits(judged(definition, out.getvalue())) == {"id": ["long"], "v": ["double"]}
    schema = {"type": "record", "name": "t", "fields": [{"name": "id", "type": ["null", "int"]}]}
    out = io.BytesIO()
    fastavro.writer(out, schema, [{"id": 1}, {"id": None}])
    report = judged(table(("id", "int"), file_type="avro"), out.getvalue())
    assert (reasons(report), report["columns"][0]["nullable"]) == ({("required", "id"): 1}, True)


def test_what_an_import_would_refuse_is_refused() -> None:
    with pytest.raises(Invalid, match="lacks the column 'v'"):
        judged(table(("id", "int"), ("v", "int")), b"id\n1\n")


def test_bounds_stop_the_work_and_say_so() -> None:
    body = b"id\n" + b"1234567\n" * 1_000_000
    report = judged(table(("id", "int")), body, rows=10)
    assert (report["stopped_by"], report["chunks"]) == ("rows", 1)
    assert judged(table(("id", "int")), body, bytes=2 << 20)["bytes"] < 4 << 20
    assert judged(table(("id", "int")), body, seconds=0.0)["stopped_by"] == "seconds"
    assert judged(table(("id", "int")), body)["stopped_by"] is None


def test_examples_and_reasons_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MAX_REASONS", 5)
    body = b"\n".join(b'{"id": 1, "x%d": 1}' % n for n in range(100))
    report = judged(table(("id", "int"), file_type="jsonl"), body, examples=2)
    assert len(report["reasons"]) == 6
    assert sum(each["rows"] for each in report["reasons"]) == 100
    assert reasons(report)["other", None] == 95
    assert all(len(each["examples"]) <= 2 for each in report["reasons"])


def chunk(body: bytes, rows: int, columns: tuple[str, ...] = ("id", "v"), **more: Any) -> tuple[ChunkHeader, bytes]:
    payload = compress(body)
    header = ChunkHeader(
        "imp_1", 0, 5, "d", "csv", 11, 12, rows, len(body), checksum(payload), TextLayout(columns, ",", '"', ""), **more
    )
    return header, payload


def test_chunks_sent_before_are_judged_as_if_they_came_now() -> None:
    trial = TrialRun(table(("id", "int"), ("v", "int")), Bounds())
    trial.take_sent(chunk(b"1,2\n2,x\n", 2)[0], b"1,2\n2,x\n")
    trial.take_sent(replace(chunk(b"1,2\n", 1)[0], kind=PREPARE), b"1,2\n")
    trial.take_sent(chunk(b"1\n2\n", 2, ("id",))[0], b"1\n2\n")
    report = trial.report()
    assert report["rows"] == {"read": 4, "passed": 1, "failed": 3}
    assert reasons(report) == {("file", None): 2, ("type", "v"): 1}
    assert report["reasons"][1]["examples"][0]["row"] == 12


def test_all_rows_of_a_chunk_that_cannot_be_read_fail() -> None:
    trial = TrialRun(table(("id", "int")), Bounds())
    trial.take_sent(replace(chunk(b"nonsense", 5)[0], encoding="avro", layout=None), b"nonsense")
    assert trial.report()["rows"] == {"read": 5, "passed": 0, "failed": 5}
    assert reasons(trial.report()) == {("undecodable", None): 5}


def job(definition: Definition, **more: Any) -> dict[str, Any]:
    bounds = {"rows": None, "bytes": 1 << 30, "seconds": 30.0, "examples": 3}
    plain = {"definition": definition.to_json().decode(), "bounds": bounds, "chunks": False, "options": {}}
    return {**plain, "spool_dir": "/tmp", "memory_bytes": 768 << 20, **more}


async def apart(asked: dict[str, Any], *pieces: bytes) -> dict[str, Any]:
    async with what_if(asked) as process:
        for piece in pieces:
            if not await process.send(piece):
                break
        return await process.report()


def test_a_process_of_its_own_says_the_same() -> None:
    definition = table(("id", "int"), ("v", "int"))
    body = b"id,v\n1,2\n2,x\n"
    here, there = judged(definition, body), asyncio.run(apart(job(definition), body[:7], body[7:]))
    assert {**here, "seconds": 0} == {**there, "seconds": 0}


def test_a_process_of_its_own_reads_records_of_the_log() -> None:
    header, payload = chunk(b"1,2\n2,x\n", 2)
    record = pack_chunk(header, payload)
    framed = len(record).to_bytes(4, "little") + record
    report = asyncio.run(apart(job(table(("id", "int"), ("v", "int")), chunks=True), framed, framed))
    assert report["rows"] == {"read": 4, "passed": 2, "failed": 2}


def test_a_refusal_crosses_the_border_as_what_it_is() -> None:
    with pytest.raises(Invalid, match="lacks the column 'v'"):
        asyncio.run(apart(job(table(("id", "int"), ("v", "int"))), b"id\n1\n"))


def test_a_process_that_has_seen_enough_takes_no_more() -> None:
    definition = table(("id", "int"))
    asked = job(definition, bounds={"rows": 10, "bytes": 1 << 30, "seconds": 30.0, "examples": 3})
    piece = b"1234567\n" * (1 << 17)
    report = asyncio.run(apart(asked, b"id\n", *[piece] * 500))
    assert report["stopped_by"] == "rows"
    assert report["rows"]["read"] < 300_000
