"""What travels: chunks of an import, the verdict on each, and the staged files that carry accepted and rejected rows."""

from dataclasses import asdict, dataclass
from typing import Any

CHUNK_BYTES = 1 << 20
MAX_ROW_BYTES = 4 << 20

# What a chunk carries: rows, or a change of the table that the sinks must make at its version.
ROWS, PREPARE, TRUNCATE, PUBLISH = "rows", "prepare", "truncate", "publish"


@dataclass(frozen=True, slots=True)
class TextLayout:
    """How the rows of a CSV chunk are written, and which column each cell belongs to, in file order.

    A column the table does not know (unknown_fields: ignore) keeps its place under its own name."""

    columns: tuple[str, ...]
    delimiter: str
    quote: str
    null_text: str


@dataclass(frozen=True, slots=True)
class Oversize:
    """Why the chunk's single row could not be carried whole; its body is the row's beginning."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """The stamp on a chunk: where it belongs, where its rows stood in the file, and what it must be judged by.

    `encoding` is csv, jsonl, avro (container file), arrow (IPC stream) or oversize. Rows and lines count from 1;
    `first_line` is 0 where the format has no lines. `row_numbers` is given where the rows do not follow each other.
    With `deletes` each row is a key to delete. `publish` says whether its rows are held until all of the import is there.
    `key` names the data key if the chunk's rows are sealed."""

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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

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
    """What became of a chunk's rows: rows = accepted + rejected + ignored. `failure` says why it could not be judged.

    `quality` is what it tells about the rules of its definition, where that has any: see model/quality.py."""

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
    """One thing wrong with one row."""

    column: str | None
    rule: str
    message: str
    value: str | None = None
