"""Columns in, the fields of their schema out, and what several of them share as the table's defaults (`written`)."""

from collections.abc import Sequence
from typing import Any

from millrace.model.columns import Column
from millrace.model.stored_types import Avro
from millrace.model.written import AS_USUAL, USED_BY

_FEWEST = 2
_FORMATS = {"date": "date_format", "time": "time_format", "timestamp": "timestamp_format"}
_TEXTS = ("string", "enum")
Attributes = dict[str, Any]


def declared_type(column: Column) -> Avro:
    """The column's type with its null branch."""
    return ["null", column.avro] if column.nullable else column.avro


def described(columns: Sequence[Column]) -> tuple[list[Attributes], Attributes]:
    """The fields of the schema, and the table's defaults. A default is what at least two columns share, if no other column
    would be read in another way by it."""
    own = {column.name: attributes_of(column) for column in columns}
    defaults: Attributes = {}
    for kind, word in _FORMATS.items():
        users = [column for column in columns if _meaning(column).partition("-")[0] == kind]
        _share(own, users, {"format": word}, defaults)
    fractional = [column for column in columns if _meaning(column) in USED_BY["decimal_separator"]]
    _share(own, fractional, {"decimal_separator": "decimal_separator"}, defaults)
    _share_thousands(own, columns, defaults)
    booleans = [column for column in columns if _meaning(column) == "boolean"]
    _share(own, booleans, {"true_texts": "true_texts", "false_texts": "false_texts"}, defaults)
    for word in ("null_texts", "trim"):
        # Other columns than text hold no such words, and ignore spaces anyway.
        users = [column for column in columns if word in own[column.name] or _meaning(column) in _TEXTS]
        _share(own, users, {word: word}, defaults)
    fields = [{"name": column.name, "type": declared_type(column), **own[column.name]} for column in columns]
    return fields, defaults


def attributes_of(column: Column) -> Attributes:
    """What is to be declared about how a column is written."""
    written, found = column.written, Attributes()
    if column.header is not None:
        found["header"] = column.header
    if written.formats:
        found["format"] = written.formats[0] if len(written.formats) == 1 else list(written.formats)
    for word in ("time_zone", "decimal_separator", "thousands_separator", "trim"):
        if getattr(written, word) != getattr(AS_USUAL, word):
            found[word] = getattr(written, word)
    for word in ("true_texts", "false_texts", "null_texts"):
        if getattr(written, word) != getattr(AS_USUAL, word):
            found[word] = list(getattr(written, word))
    used = {word for word in found if word == "header" or _meaning(column) in USED_BY[word]}
    return {word: value for word, value in found.items() if word in used}


def _meaning(column: Column) -> str:
    return column.logical or column.kind


def _share(own: dict[str, Attributes], users: Sequence[Column], words: dict[str, str], defaults: Attributes) -> None:
    """Moves attributes that all users have alike to the defaults."""
    said = [{word: own[column.name].get(word) for word in words} for column in users]
    if len(users) < _FEWEST or any(each != said[0] for each in said) or not any(said[0].values()):
        return
    defaults |= {words[word]: value for word, value in said[0].items() if value is not None}
    for column in users:
        for word in words:
            own[column.name].pop(word, None)


def _share_thousands(own: dict[str, Attributes], columns: Sequence[Column], defaults: Attributes) -> None:
    word = "thousands_separator"
    numeric = [column for column in columns if _meaning(column) in USED_BY[word]]
    users = [column for column in numeric if word in own[column.name]]
    mark = own[users[0].name][word] if users else None
    # A column without thousands is read alike, unless the separator is its decimal separator.
    fractional = [column for column in numeric if _meaning(column) in USED_BY["decimal_separator"]]
    if all(column.written.decimal_separator != mark for column in fractional):
        _share(own, users, {word: word}, defaults)
