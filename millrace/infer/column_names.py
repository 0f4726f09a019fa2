"""Names in a file in, valid names of a table out; and the columns whose names cannot be used."""

import re
from collections import Counter
from collections.abc import Sequence

from millrace.model.columns import MAX_COLUMNS, RESERVED
from millrace.model.names import MAX_NAME

_LONGEST = 255
_FIRST_PRINTABLE = 32


def unusable(names: Sequence[str]) -> dict[str, str]:
    """The names that no column can have, each with the reason."""
    times, seen = Counter(names), set[str]()
    refused: dict[str, str] = {}
    for number, name in enumerate(names):
        why = (
            _fault(name, times[name], seen) if number < MAX_COLUMNS else "comes behind the last column a table may have"
        )
        if why:
            refused[name] = why
        else:
            seen.add(name.lower())
    return refused


def _fault(name: str, times: int, seen: set[str]) -> str:
    if not name:
        return "has no name"
    if times > 1:
        return f"is named {times} times"
    if name.lower() in seen:
        return "differs from another only by case"
    if name.lower() in RESERVED:
        return "is a name that Millrace keeps for itself"
    if len(name) > _LONGEST or any(ord(letter) < _FIRST_PRINTABLE for letter in name):
        return "is no printable name of up to 255 letters"
    return ""


def table_name(text: str) -> str:
    """A table's name made from a file's."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:MAX_NAME]
    return name if re.match("[A-Za-z]", name) else f"table_{name}"[:MAX_NAME].rstrip("_")


def avro_name(text: str) -> str:
    """A name for a record or fixed type inside a schema."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text) if re.match("[A-Za-z_]", text) else "_" + re.sub(r"\W", "_", text)
