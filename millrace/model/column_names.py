"""Names of columns that every reader of a table takes, and plain names instead of others. Readers of Parquet and Delta differ
about spaces, brackets, commas, dots and letters beyond ASCII."""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence

from millrace.model.columns import RESERVED, Column
from millrace.model.errors import Invalid
from millrace.model.fields import Field, field_of

FieldPath = tuple[str, ...]

_SAFE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_LONGEST = 63
_SHOWN = 3
# Letters that decomposing does not make plain, or that people spell with two letters.
_SPELLED = str.maketrans({
    "ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "å": "a", "ł": "l", "đ": "d", "ð": "d",
    "þ": "th", "ı": "i",
})  # fmt: skip


def is_safe(name: str) -> bool:
    """Whether every reader takes the name."""
    return _SAFE.fullmatch(name) is not None


def refuse_unsafe(columns: Sequence[Column], known: Sequence[Column] = ()) -> None:
    """Refuses names, with what to write instead. Columns and fields that the table has already keep theirs: `known`."""
    there = {path for column in known for path, _ in _paths(field_of(column))}
    names = [column.name for column in columns]
    proposed = dict(zip(names, plain_names(names), strict=True))
    found = []
    for column in columns:
        for path, siblings in _paths(field_of(column)):
            name = path[-1]
            if path in there or is_safe(name):
                continue
            if len(path) == 1:
                found.append((name, f"{{name: {proposed[name]}, header: {name!r}, …}}"))
            else:
                plain = dict(zip(siblings, plain_names(siblings), strict=True))[name]
                found.append((".".join(path), f"{{name: {plain}, aliases: [{name!r}], …}}"))
    if found:
        shown = ", ".join(repr(name) for name, _ in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        fields = "; ".join(field for _, field in found[:_SHOWN])
        raise Invalid(
            f"Not every reader of a Delta table takes the name of {shown}{more}.",
            remedy=f"Use ASCII letters, digits, '_' and '-'; files keep their titles: {fields}.",
            code="unsafe_name",
        )


def plain_names(titles: Collection[str]) -> list[str]:
    """A name for each title, in order. A title that is a plain name stays. No two names differ only in case, unless their
    titles do."""
    taken = {title.lower() for title in titles if _PLAIN.fullmatch(title)} | {name.lower() for name in RESERVED}
    names = []
    for place, title in enumerate(titles, 1):
        if _PLAIN.fullmatch(title) or not title:
            names.append(title)
            continue
        name = _distinct(_folded(title) or f"column_{place}", taken)
        taken.add(name)
        names.append(name)
    return names


def _paths(
    field: Field, above: FieldPath = (), beside: Sequence[str] = ()
) -> Iterator[tuple[FieldPath, Sequence[str]]]:
    """The path of a field and of all fields inside it, each with the names beside it."""
    path = (*above, field.name) if field.name else above
    if field.name:
        yield path, beside
    if field.kind == "record":
        parts = field.inner_fields()
        names = [part.name for part in parts]
        for part in parts:
            yield from _paths(part, path, names)
    elif field.kind in ("array", "map"):
        yield from _paths(field.element(), path)


def _folded(title: str) -> str:
    text = unicodedata.normalize("NFC", title).lower().translate(_SPELLED)
    text = unicodedata.normalize("NFKD", text).lower()
    text = "".join(letter for letter in text if not unicodedata.combining(letter))
    name = re.sub(r"[^a-z0-9]+", "_", text).strip("_")[:_LONGEST].rstrip("_")
    return f"_{name}" if name[:1].isdigit() else name


def _distinct(name: str, taken: set[str]) -> str:
    if name not in taken:
        return name
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"
