"""Tables that fit a terminal: which columns are shown, how wide each is, and its cells over one or more lines.

Ids stay in one piece, because the next command needs them. Other text is folded, then columns are left out."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from unicodedata import combining, east_asian_width

GAP = "  "
# Text is folded to no less than this.
NARROWEST = 12
_ID = re.compile(r"\b[a-z]{2,6}_[0-9a-hjkmnp-tv-z]{26}\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class FittedTable:
    """Lines of text, and the headers of the columns that had no room."""

    lines: list[str]
    left_out: list[str]


def fitted(
    headers: Sequence[str],
    cells: Sequence[Sequence[str]],
    numeric: Sequence[bool],
    width: int | None,
    least: Sequence[str] = (),
) -> FittedTable:
    """`width`: of the terminal; None: there is none. `least`: the columns that are left out first, in this order."""
    columns = [[header, *column] for header, *column in zip(headers, *cells, strict=True)]
    natural = [max(map(shown_width, column)) for column in columns]
    if width is None:
        widths = dict(enumerate(natural))
    else:
        ids = [_longest_id(column) for column in columns]
        floor = [most if numeric[at] else max(min(most, NARROWEST), ids[at]) for at, most in enumerate(natural)]
        # Other commands need the names in the first column.
        floor[0] = max(floor[0], min(natural[0], width // 2))
        kept = _kept(headers, floor, ids, width, least)
        widths = _shrunk({at: natural[at] for at in kept}, floor, width)
    lines = [line for row in (headers, *cells) for line in _lines(row, widths, numeric)]
    return FittedTable(lines, [header for at, header in enumerate(headers) if at not in widths])


def _kept(
    headers: Sequence[str], floor: Sequence[int], ids: Sequence[int], width: int, least: Sequence[str]
) -> list[int]:
    """The columns that have room at their narrowest. The first one stays, and those with ids unless they are `least`."""
    kept = list(range(len(headers)))
    named = [at for name in least for at in kept if headers[at] == name]
    for at in [*named, *(at for at in reversed(kept[1:]) if at not in named)]:
        if _total(floor[each] for each in kept) <= width:
            break
        if at != 0 and (at in named or not ids[at]):
            kept.remove(at)
    return kept


def _longest_id(column: Sequence[str]) -> int:
    """How wide the longest word is that holds an id."""
    return max((len(word) for cell in column for word in cell.split() if _ID.search(word)), default=0)


def _shrunk(widths: dict[int, int], floor: Sequence[int], width: int) -> dict[int, int]:
    """The widest column gives first."""
    while _total(widths.values()) > width:
        widest = max((at for at in widths if widths[at] > floor[at]), key=widths.__getitem__, default=None)
        if widest is None:
            break
        widths[widest] -= 1
    return widths


def _total(widths: Iterable[int]) -> int:
    found = list(widths)
    return sum(found) + len(GAP) * max(len(found) - 1, 0)


def _lines(row: Sequence[str], widths: dict[int, int], numeric: Sequence[bool]) -> list[str]:
    folded = {at: fold(row[at], width) for at, width in widths.items()}
    height = max(map(len, folded.values()), default=0)
    return [
        GAP.join(
            _padded(parts[number] if number < len(parts) else "", widths[at], right=numeric[at])
            for at, parts in folded.items()
        ).rstrip()
        for number in range(height)
    ]


def _padded(text: str, width: int, *, right: bool) -> str:
    space = " " * (width - shown_width(text))
    return space + text if right else text + space


def fold(text: str, width: int) -> list[str]:
    """Breaks at spaces where it can."""
    parts: list[str] = []
    while shown_width(text) > width:
        cut = _most(text, width)
        space = text.rfind(" ", 0, cut + 1)
        if space > 0:
            parts.append(text[:space].rstrip())
            text = text[space:].lstrip()
        else:
            parts.append(text[:cut])
            text = text[cut:]
    return [*parts, text]


def _most(text: str, width: int) -> int:
    """How many characters fit, at least one."""
    used = 0
    for at, character in enumerate(text):
        used += _character_width(character)
        if used > width:
            return max(at, 1)
    return len(text)


def shown_width(text: str) -> int:
    """How many columns of a terminal it takes."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
