"""Titles of a file's columns in, plain names for the table's columns out: letters, digits and underscores."""

import re
import unicodedata
from collections.abc import Sequence

from millrace.model.columns import RESERVED

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST = 63
# Letters that decomposing does not make plain, or that people spell with two letters.
_SPELLED = str.maketrans({
    "ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "å": "a", "ł": "l", "đ": "d", "ð": "d",
    "þ": "th", "ı": "i",
})  # fmt: skip


def plain_names(titles: Sequence[str]) -> list[str]:
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
