"""Chunks of every format for the judge: the same rows as CSV, JSON Lines, Avro and Arrow, and their stamps."""

import io
import json
from typing import Any

import fastavro
import pyarrow as pa

from millrace.declare.table import parse_table
from millrace.model.chunk import ChunkHeader, TextLayout
from millrace.model.table import Definition, define
from millrace.validate.judge import JudgedChunk, judge


def table(*fields: dict[str, Any], key: tuple[str, ...] = (), **more: Any) -> Definition:
    schema = {"type": "record", "name": "t", "fields": list(fields)}
    return define("tenant", parse_table({"schema": schema, "primary_key": list(key), **more}), 1)


def column(name: str, avro: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": avro, **more}


def judged(definition: Definition, encoding: str, body: bytes, rows: int, **stamp: Any) -> JudgedChunk:
    """Judged twice, because it must be the same twice."""
    values: dict[str, Any] = {"first_row": 1, "first_line": 1, **stamp}
    header = ChunkHeader(
        "imp_1", 3, 77, definition.fingerprint, encoding, rows=rows, plain_bytes=len(body), checksum=9, **values
    )
    result, again = judge(header, body, definition), judge(header, body, definition)
    assert (result.accepted, result.rejected, result.verdict) == (again.accepted, again.rejected, again.verdict)
    result.accepted.validate(full=True)
    rejected = 0 if result.rejected is None else result.rejected.num_rows
    if result.verdict.failure is None:
        assert result.accepted.num_rows + rejected == rows
    return result


def csv(definition: Definition, text: str, *columns: str, null: str = "", **stamp: Any) -> JudgedChunk:
    layout = TextLayout(columns or tuple(one.name for one in definition.columns), ",", '"', null)
    return judged(definition, "csv", text.encode(), len(text.splitlines()), layout=layout, **stamp)


def jsonl(definition: Definition, *rows: Any, **stamp: Any) -> JudgedChunk:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    return judged(definition, "jsonl", ("\n".join(lines) + "\n").encode(), len(lines), **stamp)


def arrow(definition: Definition, rows: pa.Table, **stamp: Any) -> JudgedChunk:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return judged(definition, "arrow", sink.getvalue().to_pybytes(), rows.num_rows, **{"first_line": 0, **stamp})


def avro(definition: Definition, fields: list[dict[str, Any]], *rows: dict[str, Any], **stamp: Any) -> JudgedChunk:
    stream = io.BytesIO()
    fastavro.writer(stream, {"type": "record", "name": "written", "fields": fields}, rows)
    return judged(definition, "avro", stream.getvalue(), len(rows), **{"first_line": 0, **stamp})


def reasons(result: JudgedChunk) -> list[list[tuple[str | None, str]]]:
    """(column, rule) of every reason, by rejected row."""
    rejected = [] if result.rejected is None else result.rejected.to_pylist()
    return [[(reason["column"], reason["rule"]) for reason in row["reasons"]] for row in rejected]
