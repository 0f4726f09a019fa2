"""`millrace infer`: a file in, a complete declaration out, checked by judging the same file. Needs no platform."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.infer.checking import CheckedDraft, checked, refuse_empty
from millrace.infer.column_names import table_name
from millrace.infer.draft import Drafted
from millrace.infer.encodings import as_utf8, encoding_of
from millrace.infer.json_file import SPACES
from millrace.infer.sampling import FileSample, compression_of, plain_bytes, sample_of
from millrace.model.errors import Invalid
from millrace.model.formats import CSV, Format, every_format, format_of_suffix, load
from millrace.model.names import checked_name

_START_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Proposal:
    """`looked_at`: the number of rows the types are based on. `checked`: the judge's result for the file."""

    document: dict[str, Any]
    compression: str | None
    looked_at: int
    checked: CheckedDraft


def propose(path: Path, name: str | None = None) -> Proposal:
    """Refuses a file without rows or columns, and a JSON document that is not JSON Lines."""
    table = checked_name("table", name) if name else table_name(path.name.partition(".")[0])
    looked = _looked_at(path, table)
    refuse_empty(looked.draft, path)
    result = checked(path, looked.draft)
    return Proposal(result.draft.document(), compression_of(path), looked.rows, result)


def _looked_at(path: Path, table: str) -> Drafted:
    start = _start(path)
    found = next((each for each in every_format() if each.magic and start.startswith(each.magic)), None)
    if found is None:
        text = as_utf8(FileSample(start), encoding_of(FileSample(start))).head.lstrip(SPACES)
        if not text:
            raise Invalid(f"{path.name} is empty.", remedy="Give a file with rows.")
        found = _text_format(path, text)
    looked: Drafted = load(found.drafter)(sample_of(path) if found.is_text else path, table)
    return looked


def _text_format(path: Path, text: bytes) -> Format:
    for each in every_format():
        if each.recogniser and load(each.recogniser)(path.name, text):
            return each
    named = next(filter(None, map(format_of_suffix, reversed(path.suffixes))), None)
    return CSV if named is None or named.magic or named.recogniser else named


def _start(path: Path) -> bytes:
    held = b""
    for piece in plain_bytes(path):
        held += piece
        if len(held) >= _START_BYTES:
            break
    return held[:_START_BYTES]
