"""A sample of a JSON Lines file in, the draft of its table out, with nested types."""

from collections.abc import Iterator
from dataclasses import replace

import orjson
import polars as pl
import pyarrow as pa

from millrace.infer.agreeing import agreed
from millrace.infer.described import declared_type
from millrace.infer.draft import Draft, Drafted, avro_name, proposed, unusable, usable, with_key
from millrace.infer.evidence import TEXTS
from millrace.infer.guessing import ColumnGuess, guess_column
from millrace.infer.json_shape import JsonShape, Object, looked_at, object_shape
from millrace.infer.keys import KeyFinder
from millrace.infer.sampling import UTF8, UTF16, FileSample, as_utf8, encoding_of
from millrace.model.columns import Column, column_of
from millrace.model.errors import Invalid
from millrace.model.stored_types import Avro

_AT_ONCE = 1 << 20
_MOST_FIELDS = 200
SPACES = b" \t\r\n"


def is_json(name: str, text: bytes) -> bool:
    """Whether the first line is a JSON object."""
    if text.startswith(b"["):
        try:
            begins_json = text.rstrip(SPACES).endswith(b"]") and orjson.loads(text) is not None
        except orjson.JSONDecodeError:
            begins_json = text.lstrip(b"[ \t\r\n").startswith(b"{")
        if begins_json:
            remedy = "Send JSON Lines: one object per line (jq -c '.[]' makes it from an array)."
            raise Invalid(f"{name} is a JSON array.", remedy=remedy)
    if not text.startswith(b"{"):
        return False
    line = text.partition(b"\n")[0]
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        # The line is longer than the sample, so it cannot be parsed. No CSV header begins like this.
        return len(line) == len(text) and line.startswith((b'{"', b"{ "))


def draft_json(sample: FileSample, table: str) -> Drafted:
    encoding = encoding_of(sample)
    # JSON is UTF-8, unless a byte order mark at the start says otherwise.
    text = as_utf8(sample, UTF16 if encoding == UTF16 else UTF8)
    shape, watch, rows = JsonShape(), KeyFinder(), 0
    texts: dict[str, list[pa.Array]] = {}
    for body in _bodies(text):
        objects, shown = looked_at(body, object_shape)
        shape = shape.merged(shown)
        watch.add(_keyable(objects, shown), len(objects))
        rows += len(objects)
        for name, cells in _texts(objects, shown).items():
            texts.setdefault(name, []).append(cells)
    return Drafted(with_key(_written(_drawn(table, shape), shape, texts), watch), rows)


def _texts(objects: list[Object], shown: JsonShape) -> dict[str, pa.Array]:
    """The fields that are text which no type takes as it is."""
    plain = [name for name, inner in shown.fields.items() if "text" in inner.kinds and inner.usual.fits <= TEXTS]
    return {
        name: pa.array([cell for value in objects if isinstance(cell := value.get(name), str)], pa.string())
        for name in plain
    }


def _written(draft: Draft, shape: JsonShape, texts: dict[str, list[pa.Array]]) -> Draft:
    """The draft, in which text that is a date or a time for people has this type and a format."""
    guesses = []
    for column in draft.columns:
        cells = pa.concat_arrays(texts[column.name]) if column.name in texts else None
        if cells is not None and column.avro == "string":
            guesses.append(guess_column(column.name, cells, shape.fields[column.name].scalar.nulls, strict=True))
        else:
            guesses.append(ColumnGuess(column))
    guesses = agreed(guesses, "", lambda name: pl.Series(pa.concat_arrays(texts[name])))
    remarks = [f"Column {guess.column.name!r} {remark}." for guess in guesses for remark in guess.remarks]
    return replace(draft, columns=tuple(guess.column for guess in guesses), remarks=(*draft.remarks, *remarks))


def _bodies(text: FileSample) -> Iterator[bytes]:
    """The sample in bodies of whole lines."""
    start = 0
    while start < len(text.head):
        end = text.head.find(b"\n", start + _AT_ONCE) + 1
        if not end:
            end = len(text.head) if text.is_whole else text.head.rfind(b"\n") + 1
            if end > start:
                yield text.head[start:end]
            break
        yield text.head[start:end]
        start = end
    for piece in text.pieces:
        first, last = piece.find(b"\n") + 1, piece.rfind(b"\n") + 1
        if last > first:
            yield piece[first:last]


def _keyable(objects: list[Object], shown: JsonShape) -> dict[str, pa.Array]:
    """The fields that are text or whole numbers in all objects."""
    columns = {}
    for name, field in shown.fields.items():
        if field.scalar.cells == len(objects) and field.scalar.fits & {"string", "long"}:
            kind = pa.string() if "string" in field.scalar.fits else pa.int64()
            columns[name] = pa.array([value[name] for value in objects], kind)
    return columns


def _drawn(table: str, shape: JsonShape) -> Draft:
    why_not = "has values of kinds that no type unites"
    columns, left_out = usable(list(shape.fields), lambda name: _column(name, shape.fields[name]) or why_not)
    return Draft(table, "jsonl", columns, left_out=left_out)


def _column(name: str, shape: JsonShape) -> Column | None:
    if not shape.objects and not shape.lists:
        return proposed(name, shape.usual)
    avro = _nested(shape, avro_name(name))
    return None if avro is None else column_of(name, avro, shape.scalar.nulls > 0)


def _type(shape: JsonShape, name: str) -> Avro | None:
    """A type with its null branch, for use inside another type."""
    column = _column(name, shape)
    return None if column is None else declared_type(column)


def _nested(shape: JsonShape, name: str) -> Avro | None:
    if shape.scalar.cells or (shape.objects and shape.lists):
        return None
    if shape.lists:
        items = _type(shape.items or JsonShape(), f"{name}_item")
        return None if items is None or shape.overgrown else {"type": "array", "items": items}
    if shape.overgrown or not shape.fields or len(shape.fields) > _MOST_FIELDS or unusable(list(shape.fields)):
        return _map(shape, name)
    # A field that fits no type is left out: the judge ignores unknown fields of a nested record.
    types = {field: _type(inner, f"{name}_{avro_name(field)}") for field, inner in shape.fields.items()}
    fields = [{"name": field, "type": avro} for field, avro in types.items() if avro is not None]
    return {"type": "record", "name": name, "fields": fields} if fields else None


def _map(shape: JsonShape, name: str) -> Avro | None:
    """The type of objects that are maps: many keys, with values of one type."""
    values = JsonShape()
    for inner in shape.fields.values():
        values = values.merged(inner)
    avro = None if shape.overgrown else _type(values, f"{name}_value")
    return None if avro is None else {"type": "map", "values": avro}
