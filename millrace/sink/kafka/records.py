"""Rows as Kafka records: a batch in, a key and a value per row out, as JSON or Avro.

The key is a JSON object of the key columns, whatever the format. Avro values are in single-object encoding: two bytes, the
schema's fingerprint, the datum."""

import hashlib
import io
import re
from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.schema import fingerprint, to_parsing_canonical_form

from millrace.arrow.types import arrow_type
from millrace.model.table import Definition
from millrace.sink.encoders.json_cells import json_rows, nested

OWN = ("_version", "_import", "_row")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MARK = b"\xc3\x01"
_HEAD_BYTES = 10


class Encoder:
    """`schema` and its fingerprint are None where values are JSON."""

    def __init__(self, definition: Definition, form: str) -> None:
        self._definition = definition
        self._names = [column.name for column in definition.columns] + list(OWN)
        self.schema: dict[str, Any] | None = None
        self.schema_id = ""
        if form == "avro":
            self.schema = _avro_schema(definition)
            self._parsed = parse_schema(self.schema)
            self.schema_id = fingerprint(to_parsing_canonical_form(self.schema), "CRC-64-AVRO")
            self._head = _MARK + bytes.fromhex(self.schema_id)

    def keys(self, batch: pa.RecordBatch) -> list[bytes | None]:
        key = self._definition.table.primary_key
        return list(json_rows(batch.select(list(key)))) if key else [None] * batch.num_rows

    def values(self, batch: pa.RecordBatch) -> list[bytes]:
        chosen = batch.select(self._names)
        return json_rows(chosen) if self.schema is None else self._avro(chosen)

    def _avro(self, batch: pa.RecordBatch) -> list[bytes]:
        kinds = {column.name: arrow_type(column) for column in self._definition.columns}
        columns = [
            [nested(cell, kinds[name], lambda scalar: scalar) for cell in column.to_pylist()]
            if name in kinds and pa.types.is_nested(kinds[name])
            else column.to_pylist()
            for name, column in zip(self._names, batch.columns, strict=True)
        ]
        names = [avro_name(name) for name in self._names]
        made = []
        for row in zip(*columns, strict=True):
            body = io.BytesIO()
            body.write(self._head)
            schemaless_writer(body, self._parsed, dict(zip(names, row, strict=True)))
            made.append(body.getvalue())
        return made


def avro_name(name: str) -> str:
    """A name that Avro allows: letters, digits and underscores stay. A name with other characters gets a digest."""
    if _NAME.fullmatch(name):
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=3).hexdigest()
    return f"_{re.sub(r'[^A-Za-z0-9_]', '_', name)}_{digest}"


def _avro_schema(definition: Definition) -> dict[str, Any]:
    fields = [
        {"name": avro_name(column.name), "type": ["null", column.avro] if column.nullable else column.avro}
        for column in definition.columns
    ]
    own = [
        {"name": "_version", "type": "long"},
        {"name": "_import", "type": "string"},
        {"name": "_row", "type": "long"},
    ]
    return {"type": "record", "name": avro_name(definition.table.name), "fields": [*fields, *own]}


def decoded(value: bytes, schemas: Mapping[str, Any]) -> dict[str, Any]:
    """`schemas` by their fingerprint. Names are those that were written."""
    if not value.startswith(_MARK):
        found: dict[str, Any] = orjson.loads(value)
        return found
    schema = schemas[value[len(_MARK) : _HEAD_BYTES].hex()]
    datum: Any = schemaless_reader(io.BytesIO(value[_HEAD_BYTES:]), schema, None)
    return dict(datum)
