"""The registry of file formats: one record per format. All other modules ask here.

Records name their functions by import path ("module:function"), so that importing the registry loads no parser."""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any

ENCODINGS = ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "windows-1252")


@dataclass(frozen=True, slots=True)
class Format:
    """`cutter`: an Opening in, a Cutter out (`formats/pieces.py`). `parser`: a chunk in, Parsed out (`validate/parsed.py`).
    `drafter`: a FileSample of a text file, or else the path, and the table's name in, Drafted out (`infer/draft.py`).

    `infer` recognises a file by its `magic` bytes, else by the `recogniser` of its first text, else by its suffix.
    `observer`: finds the types that would fit rejected cells; without one there is no advice."""

    name: str
    title: str
    cutter: str
    parser: str
    drafter: str
    suffixes: tuple[str, ...]
    # Other spellings of `name` in declarations and requests.
    aliases: tuple[str, ...] = ()
    # The encoding of its chunks, if it is not the name.
    chunk_encoding: str = ""
    magic: bytes = b""
    recogniser: str = ""
    observer: str = ""
    is_text: bool = False
    # Whether the table's `csv` settings describe it.
    has_dialect: bool = False
    # Whether the bytes of rejected rows, one row per line, form a valid chunk.
    is_replayable: bool = False
    # Whether a number is never read as text.
    is_strict: bool = False

    @property
    def encoding(self) -> str:
        return self.chunk_encoding or self.name


CSV = Format(
    "csv",
    "CSV",
    cutter="millrace.formats.csv_cut:csv_cutter",
    parser="millrace.validate.from_csv:parse_csv",
    drafter="millrace.infer.csv_file:draft_csv",
    observer="millrace.infer.observing:Observed.look_at_csv",
    suffixes=(".csv",),
    is_text=True,
    has_dialect=True,
    is_replayable=True,
)
JSON_LINES = Format(
    "jsonl",
    "JSON Lines",
    cutter="millrace.formats.line_cut:json_lines_cutter",
    parser="millrace.validate.from_jsonl:parse_jsonl",
    drafter="millrace.infer.json_file:draft_json",
    recogniser="millrace.infer.json_file:is_json",
    observer="millrace.infer.observing:Observed.look_at_json",
    suffixes=(".jsonl", ".ndjson"),
    aliases=("json", "ndjson"),
    is_text=True,
    is_replayable=True,
    is_strict=True,
)
AVRO = Format(
    "avro",
    "Avro",
    cutter="millrace.formats.avro_cut:AvroCutter",
    parser="millrace.validate.from_avro:parse_avro",
    drafter="millrace.infer.avro_file:draft_avro",
    observer="millrace.infer.observing:Observed.look_at_avro",
    suffixes=(".avro",),
    magic=b"Obj\x01",
    is_strict=True,
)
PARQUET = Format(
    "parquet",
    "Parquet",
    cutter="millrace.formats.parquet_cut:ParquetCutter",
    parser="millrace.validate.from_arrow:parse_arrow",
    drafter="millrace.infer.parquet_file:draft_parquet",
    observer="millrace.infer.observing:Observed.look_at_arrow",
    suffixes=(".parquet",),
    chunk_encoding="arrow",
    magic=b"PAR1",
)
_formats: dict[str, Format] = {each.name: each for each in (CSV, JSON_LINES, AVRO, PARQUET)}


def register(given: Format) -> None:
    _formats[given.name] = given


def every_format() -> tuple[Format, ...]:
    return tuple(_formats.values())


def format_named(name: str) -> Format | None:
    return _formats.get(name)


def format_of_chunks(encoding: object) -> Format | None:
    return next((each for each in _formats.values() if each.encoding == encoding), None)


def format_of_suffix(suffix: str) -> Format | None:
    return next((each for each in _formats.values() if suffix.lower() in each.suffixes), None)


def file_types() -> tuple[str, ...]:
    return tuple(_formats)


def file_type_of(value: object) -> object:
    """The name of a format, given its name or an alias in any case."""
    if not isinstance(value, str):
        return value
    word = value.lower()
    return next((each.name for each in _formats.values() if word in each.aliases), word)


def either(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


@cache
def load(path: str) -> Any:
    """The object that an import path of a record names."""
    module, _, name = path.partition(":")
    return attrgetter(name)(import_module(module))
