"""Two sets of fields in, the mismatches out that keep values of one from becoming values of the other.

There are two policies: `AVRO`, the rules of schema resolution, and `SINKS`, what sinks can do to stored rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from millrace.model.columns import logical_type
from millrace.model.fields import Field, assigned, kind_of, spelled
from millrace.model.stored_types import Avro

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_LOOSENINGS = (("enum", "string"), ("fixed", "bytes"))


@dataclass(frozen=True, slots=True)
class Mismatch:
    """`kind` is missing (the reader finds no such field and has no default), null or type."""

    where: str
    kind: str
    written: str
    read: str


@dataclass(frozen=True, slots=True)
class ReadPolicy:
    """`takes`: whether all scalars of one type are values of another. The flags name mismatches that are allowed."""

    takes: Callable[[Avro, Avro], bool]
    tolerates_missing: bool = False
    tolerates_null: bool = False


def matched(written: Sequence[Field], read: Sequence[Field]) -> dict[str, Field]:
    """For each field to read, by name, the field that was written."""
    by_name = {field.name: field for field in written}
    return {name: by_name[former] for name, former in assigned(by_name, read).items()}


def problems(
    written: Sequence[Field], read: Sequence[Field], reading: ReadPolicy, inside: str = ""
) -> Iterator[Mismatch]:
    pairs = matched(written, read)
    for field in read:
        where = f"{inside}{field.name}"
        if field.name in pairs:
            yield from between(pairs[field.name], field, reading, where)
        elif not (field.fills_in or reading.tolerates_missing):
            yield Mismatch(where, "missing", "", field.spelled())


def between(written: Field, read: Field, reading: ReadPolicy, where: str) -> Iterator[Mismatch]:
    """The mismatches of two fields that belong together, whatever their names are."""
    if written.nullable and not read.nullable and not reading.tolerates_null:
        yield Mismatch(where, "null", written.spelled(), read.spelled())
    if written.kind == read.kind == "record":
        yield from problems(written.inner_fields(), read.inner_fields(), reading, f"{where}.")
    elif written.kind == read.kind and read.kind in ("array", "map"):
        yield from between(written.element(), read.element(), reading, f"{where}[]")
    elif not reading.takes(written.avro, read.avro):
        yield Mismatch(where, "type", spelled(written.avro), spelled(read.avro))


def _readable(written: Avro, read: Avro) -> bool:
    """Avro's promotions. Stricter than Avro for logical types, which give a stored value its meaning."""
    if _same_family(written, read):
        return kind_of(written) == kind_of(read) and _within(written, read, defaults=True)
    return _are_plain(written, read) and kind_of(read) in _PROMOTIONS.get(kind_of(written), ())


def _keepable(written: Avro, read: Avro) -> bool:
    """More than Avro's promotions: a symbol is also text, a fixed is also bytes, and a decimal may change its encoding."""
    if _same_family(written, read):
        return _within(written, read, defaults=False)
    loosened = _are_plain(written, read) and (kind_of(written), kind_of(read)) in _LOOSENINGS
    return loosened or _readable(written, read)


def _are_plain(written: Avro, read: Avro) -> bool:
    return logical_type(written) is None and logical_type(read) is None


def _same_family(written: Avro, read: Avro) -> bool:
    logical = logical_type(written), logical_type(read)
    if logical == ("uuid", None):
        return kind_of(read) == "string"
    return logical[0] == logical[1] and (logical[0] == "decimal" or kind_of(written) == kind_of(read))


def _within(written: Avro, read: Avro, *, defaults: bool) -> bool:
    """Whether all values of a type are values of another type of its family. An enum's default may replace other symbols."""
    if logical_type(read) == "decimal":
        return bool(written.get("scale", 0) == read.get("scale", 0) and written["precision"] <= read["precision"])
    if kind_of(read) == "enum":
        return set(written["symbols"]) <= set(read["symbols"]) or (defaults and "default" in read)
    return kind_of(read) != "fixed" or bool(written["size"] == read["size"])


AVRO = ReadPolicy(_readable)
SINKS = ReadPolicy(_keepable, tolerates_missing=True, tolerates_null=True)
