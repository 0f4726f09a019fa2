"""`millrace infer`: a file in, a whole declaration out, checked by the judge over the same file. Needs no platform."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from millrace.formats.avro_container import MAGIC as AVRO_MAGIC
from millrace.infer.avro_file import draft_avro
from millrace.infer.checking import Checked, checked, refuse_empty
from millrace.infer.column_names import table_name
from millrace.infer.csv_file import draft_csv
from millrace.infer.draft import Looked
from millrace.infer.encodings import as_utf8, encoding_of
from millrace.infer.json_file import draft_json
from millrace.infer.parquet_file import draft_parquet
from millrace.infer.sampling import Sample, compression_of, plain_bytes, sample_of
from millrace.model.errors import Invalid
from millrace.model.names import checked_name

PARQUET_MAGIC = b"PAR1"
_START_BYTES = 64 << 10
_SPACES = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Proposal:
    """`looked_at`: the rows the types are drawn from; `checked` says what the judge makes of the file by it."""

    document: dict[str, Any]
    compression: str | None
    looked_at: int
    checked: Checked


def propose(path: Path, name: str | None = None) -> Proposal:
    """Refuses a file without rows or columns, and a JSON document that is not JSON Lines."""
    table = checked_name("table", name) if name else table_name(path.name.partition(".")[0])
    looked = _looked_at(path, table)
    refuse_empty(looked.draft, path)
    result = checked(path, looked.draft)
    return Proposal(result.draft.document(), compression_of(path), looked.rows, result)


def _looked_at(path: Path, table: str) -> Looked:
    start = _start(path)
    if start.startswith(PARQUET_MAGIC):
        return draft_parquet(path, table)
    if start.startswith(AVRO_MAGIC):
        return draft_avro(path, table)
    sample = sample_of(path)
    text = as_utf8(Sample(start), encoding_of(Sample(start))).head.lstrip(_SPACES)
    if not text:
        raise Invalid(f"{path.name} is empty.", remedy="Give a file with rows.")
    return draft_json(sample, table) if _is_json(path, text) else draft_csv(sample, table)


def _start(path: Path) -> bytes:
    held = b""
    for piece in plain_bytes(path):
        held += piece
        if len(held) >= _START_BYTES:
            break
    return held[:_START_BYTES]


def _is_json(path: Path, text: bytes) -> bool:
    """Whether the first line is a JSON object."""
    if text.startswith(b"["):
        try:
            begins_json = text.rstrip(_SPACES).endswith(b"]") and orjson.loads(text) is not None
        except orjson.JSONDecodeError:
            begins_json = text.lstrip(b"[ \t\r\n").startswith(b"{")
        if begins_json:
            remedy = "Send JSON Lines: one object per line (jq -c '.[]' makes it from an array)."
            raise Invalid(f"{path.name} is a JSON array.", remedy=remedy)
    if not text.startswith(b"{"):
        return False
    line = text.partition(b"\n")[0]
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        # A line longer than what was looked at cannot be told from here; no CSV header begins so.
        return len(line) == len(text) and line.startswith((b'{"', b"{ "))
