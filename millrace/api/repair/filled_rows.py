"""Rejected rows with some values replaced: the other values are those of the original row. Written as JSON Lines.

A cell that could not be read keeps its text, so that it is rejected again if nobody gives another value."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from millrace.api.jobs.rejected_rows import Choice, Piece, RejectedRows, chunk_of
from millrace.formats.matching import readable_columns
from millrace.model.columns import DELETED_COLUMN, ROW_COLUMN, Column
from millrace.model.errors import Invalid
from millrace.model.fields import assigned
from millrace.model.formats import JSON_LINES, format_of_chunks, load
from millrace.model.imports import Import
from millrace.model.table import Definition
from millrace.validate.cells import is_nested, is_utf8
from millrace.validate.csv_cells import read_cells
from millrace.validate.encoded import ENCODED
from millrace.validate.expected import meaning
from millrace.validate.parsed import Parsed, Undecodable, reading_of

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GivenRow:
    row: int
    values: Values


def exact_values(body: bytes) -> list[Values]:
    """The values in a valid body, with the text of their numbers: a decimal has more digits than a float."""
    read = json.loads(body, parse_float=orjson.Fragment, parse_int=orjson.Fragment)
    return [row["values"] for row in read["rows"]]


def filled_rows(
    rejected: RejectedRows, origin: Import, definition: Definition, chosen: Choice, rows: Sequence[GivenRow]
) -> list[bytes]:
    """A line for each given row."""
    columns = readable_columns(definition, deletes=origin.deletes)
    _refuse_unknown(columns, definition, rows)
    originals: dict[int, Values] = {}
    for piece in rejected.pieces(origin, chosen, whole=True):
        if piece.rows:
            originals |= zip(piece.rows, _values(origin, definition, piece), strict=True)
    former = {column.name: (*column.aliases, *([column.header] if column.header else [])) for column in columns}
    return [_line(row, originals.get(row.row, {}), former) for row in rows]


def _line(given: GivenRow, original: Values, former: dict[str, tuple[str, ...]]) -> bytes:
    replaced = {*given.values, *chain.from_iterable(former.get(name, ()) for name in given.values)}
    kept = {name: value for name, value in original.items() if name not in replaced}
    try:
        return orjson.dumps({ROW_COLUMN: given.row, **kept, **given.values}, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError as error:
        raise Invalid(
            f"The values of row {given.row:,} are nested too deeply, or their text is not Unicode.",
            remedy="Give values that fit the columns.",
            code="bad_value",
        ) from error


def _refuse_unknown(columns: Sequence[Column], definition: Definition, rows: Sequence[GivenRow]) -> None:
    if definition.table.unknown_fields != "reject":
        return
    known = {DELETED_COLUMN, *(name for column in columns for name in (column.name, *column.aliases))}
    for given in rows:
        if strange := given.values.keys() - known:
            raise Invalid(
                f"Row {given.row:,}: {min(strange)!r:.80} is no column of the table.",
                remedy=f"Its columns are {', '.join(column.name for column in columns)}."[:400],
                code="unknown_field",
            )


def _values(origin: Import, definition: Definition, piece: Piece) -> list[Values]:
    """The values of each row, as far as they can be read."""
    header, body = chunk_of(origin, origin, definition, piece)
    if header.encoding == JSON_LINES.encoding:
        return [_json_object(raw) for raw in piece.raw]
    found, reading = format_of_chunks(header.encoding), reading_of(header, definition)
    if found is None or header.layout is None:
        return [{} for _ in piece.rows]
    try:
        parsed: Parsed = load(found.parser)(header, body, reading)
        if parsed.rows != len(piece.rows):
            raise Undecodable("One row hides others.")
    except Undecodable:
        # A row that cannot be read at all must not hide what the others hold.
        alone = (Piece(piece.chunk, (row,), (raw,)) for row, raw in zip(piece.rows, piece.raw, strict=True))
        return [{}] if len(piece.rows) == 1 else [next(iter(_values(origin, definition, one))) for one in alone]
    names = assigned(header.layout.columns, reading.columns)
    texts = read_cells(body, header.layout, set(names.values()), clean=is_utf8(body)).columns
    columns: dict[str, Iterator[Any]] = {}
    for column, typed in zip(reading.columns, parsed.columns, strict=True):
        if column.name in names:
            unread = _unread(parsed, column.name)
            columns[column.name] = iter(_json_values(column, typed, texts[names[column.name]], unread))
    rows: list[Values] = [{} for _ in piece.rows]
    for place in range(len(rows)) if parsed.positions is None else parsed.positions.tolist():
        rows[place] = {name: next(values) for name, values in columns.items()}
    _add_unknown(rows, parsed)
    return rows


def _unread(parsed: Parsed, column: str) -> list[bool]:
    """For each entry of the columns: whether its cell could not be read. A null may be what the cell says."""
    bad = np.zeros(parsed.rows, bool)
    for fault in parsed.faults:
        if fault.column == column:
            bad[fault.rows] = True
    unread: list[bool] = (bad if parsed.positions is None else bad[parsed.positions]).tolist()
    return unread


def _add_unknown(rows: list[Values], parsed: Parsed) -> None:
    places = range(parsed.rows) if parsed.positions is None else parsed.positions.tolist()
    for name, texts in ((DELETED_COLUMN, parsed.marks), (None, parsed.rescued)):
        for place, text in zip(places, [] if texts is None else texts.to_pylist(), strict=texts is not None):
            if text is not None:
                rows[place] |= {name: text} if name else orjson.loads(text)


def _json_object(raw: bytes) -> Values:
    """Numbers keep their text, so that none is rounded."""
    try:
        found = json.loads(raw, parse_float=orjson.Fragment, parse_int=orjson.Fragment)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _json_values(column: Column, typed: pa.Array, texts: pa.Array, unread: list[bool]) -> list[Any]:
    """What the table reads; the text itself where it cannot read it."""
    originals = [None if text is None else text.decode("utf-8", "replace") for text in texts.to_pylist()]
    if is_nested(column):
        read = [None if text is None else orjson.Fragment(text) for text in originals]
    else:
        read = _plain(column, typed, originals)
    return [text if bad else value for value, text, bad in zip(read, originals, unread, strict=True)]


def _plain(column: Column, typed: pa.Array, originals: list[str | None]) -> list[Any]:
    name = meaning(column)
    if name in ENCODED:
        whole = pa.int32() if typed.type.bit_width == 32 else pa.int64()
        factor = 1000 if name == "timestamp-millis" else 1
        return [None if value is None else value // factor for value in typed.cast(whole).to_pylist()]
    if pa.types.is_binary(typed.type) or pa.types.is_fixed_size_binary(typed.type):
        return [
            text if is_read else None for text, is_read in zip(originals, typed.is_valid().to_pylist(), strict=True)
        ]
    # A decimal as a number: text would be read with the separators of the column.
    return [orjson.Fragment(f"{value:f}") if isinstance(value, Decimal) else value for value in typed.to_pylist()]
