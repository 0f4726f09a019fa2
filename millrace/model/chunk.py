"""Chunks of an import as they travel through Kafka, and the verdict on each."""

from dataclasses import dataclass
from typing import Any

CHUNK_BYTES = 1 << 20
MAX_ROW_BYTES = 4 << 20

# A chunk carries rows, or a change of the table that the sinks make at its version.
ROWS, PREPARE, TRUNCATE, PUBLISH = "rows", "prepare", "truncate", "publish"


@dataclass(frozen=True, slots=True)
class TextLayout:
    """How the rows of a CSV chunk are written, and which column each cell belongs to, in file order.

    An unknown column (unknown_fields: ignore) keeps its place under its own name. `headed`: the names are those of a header
    in the file."""

    columns: tuple[str, ...]
    delimiter: str
    quote: str
    null_text: str
    headed: bool = False


@dataclass(frozen=True, slots=True)
class Oversize:
    """Why the chunk could not hold its single row completely. Its body is the start of the row."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """Describes a chunk: its import, the place of its rows in the file, and the definition to judge it by.

    `encoding` is a format's chunk encoding (csv, jsonl, avro, arrow …) or oversize. Rows and lines count from 1; `first_line`
    is 0 for formats without lines. `row_numbers` is set if the rows are not consecutive. With `deletes` each row is a key to
    delete. `publish`: whether the rows wait until all of the import is there. `key` names the data key of sealed rows.
    `was_held`: its key was out of reach when it first came, so it comes again."""

    import_id: str
    number: int
    version: int
    definition: str
    encoding: str
    first_row: int
    first_line: int
    rows: int
    plain_bytes: int
    checksum: int
    layout: TextLayout | None = None
    oversize: Oversize | None = None
    kind: str = ROWS
    deletes: bool = False
    row_numbers: tuple[int, ...] | None = None
    publish: str = "rolling"
    key: str | None = None
    was_held: bool = False

    @staticmethod
    def from_dict(data: dict[str, Any]) -> "ChunkHeader":
        values = dict(data)
        if values.get("layout"):
            values["layout"] = TextLayout(**{**values["layout"], "columns": tuple(values["layout"]["columns"])})
        if values.get("oversize"):
            values["oversize"] = Oversize(**values["oversize"])
        if values.get("row_numbers"):
            values["row_numbers"] = tuple(values["row_numbers"])
        return ChunkHeader(**values)


@dataclass(frozen=True, slots=True)
class ChunkVerdict:
    """The judge's result: rows = accepted + rejected + ignored. `failure`: why the chunk could not be judged.

    `quality`: facts for the rules of its definition, if it has rules. See model/quality.py."""

    import_id: str
    number: int
    version: int
    rows: int
    accepted: int
    rejected: int
    ignored: int = 0
    failure: str | None = None
    checksum: int = 0
    quality: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """One fault of one row."""

    column: str | None
    rule: str
    message: str
    value: str | None = None
