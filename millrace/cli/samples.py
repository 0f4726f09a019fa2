"""Deterministic sample files for the two example tenants, with a known number of rows that must be rejected.

Speed data updates some of its own keys; reviews hold commas, quotes and line breaks inside cells."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]

SPEED_HEADER = "PROVINCECODE,DEVICEID,IFINDEX,FRAME,SLOT,PORT,ONUINDEX,ONUID,TIME,SPEEDIN,SPEEDOUT"
SPEED_FILES, SPEED_ROWS = 3, 350_000
REVIEW_HEADER = (
    "marketplace,customer_id,review_id,product_id,product_parent,product_title,product_category,star_rating,"
    "helpful_votes,total_votes,vine,verified_purchase,review_headline,review_body,review_date"
)
REVIEW_FILES, REVIEW_ROWS = 2, 55_000
BAD_OF_EACH_KIND = 20

Spoil = Callable[[list[str]], list[str]]


@dataclass(frozen=True, slots=True)
class SampleFile:
    """`bad`: the numbers, from 1, of the rows that must be rejected."""

    path: Path
    rows: int
    bad: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """`answer`: to the question when all files are in: the number of rows, and of those whose cell of `column` `marks` is
    true for, which are `marked`."""

    tenant: str
    table: str
    files: tuple[SampleFile, ...]
    question: str
    answer: list[object]
    column: str
    marks: Callable[[str], bool]
    marked: str


def speed_sample(folder: Path, rows: int = SPEED_ROWS) -> Sample:
    """The last seventh of the last file updates the first rows of the first, so the newest of each must win."""
    updates = rows // 7
    files = [
        _speed_file(folder / f"onu-{number + 1}.csv", number, rows, updates if number == SPEED_FILES - 1 else 0)
        for number in range(SPEED_FILES)
    ]
    keys = sum(file.rows - len(file.bad) for file in files) - updates
    question = "select count(*) as onus, count(*) filter (where TIME >= '2024-02') as updated from client_a.analytics"
    return Sample("client_a", "analytics", tuple(files), question, [keys, updates], "TIME", _is_updated, "updated")


def review_sample(folder: Path, rows: int = REVIEW_ROWS) -> Sample:
    files = [_review_file(folder / f"reviews-{number + 1}.csv", number, rows) for number in range(REVIEW_FILES)]
    keys = sum(file.rows - len(file.bad) for file in files)
    question = (
        "select count(*) as reviews, count(*) filter (where contains(review_body, chr(10))) as with_line_breaks "
        "from client_b.product_reviews"
    )
    return Sample(
        "client_b",
        "product_reviews",
        tuple(files),
        question,
        [keys, keys],
        "review_body",
        _has_breaks,
        "with line breaks",
    )


def _is_updated(moment: str) -> bool:
    return moment >= "2024-02"


def _has_breaks(body: str) -> bool:
    return "\n" in body


def _speed_file(path: Path, number: int, rows: int, updates: int) -> SampleFile:
    rng = np.random.default_rng(100 + number)
    onu = np.arange(number * rows, (number + 1) * rows)
    onu[rows - updates :] = np.arange(updates)
    month = np.where(np.arange(rows) < rows - updates, 1, 2)
    ranges = ((1, 1 << 28), (0, 4), (0, 16), (0, 32), (0, 128))
    lines = _joined(
        _text(onu % 63 + 1),
        _joined("10.", _text(onu // 65_536 % 256), ".", _text(onu // 256 % 256), ".", _text(onu % 256)),
        *(_text(rng.integers(low, high, rows)) for low, high in ranges),
        _text(onu),
        _joined("2024-", _padded(month), "-", _padded(onu % 28 + 1), " ", _padded(onu % 24), ":00:00"),
        _text(np.round(rng.random(rows) * 1e6, 3)),
        _text(np.round(rng.random(rows) * 1e6, 3)),
        by=",",
    )
    # Rows that update others, or are updated, stay good: then the table's size follows from the counts.
    chosen = rng.choice(np.arange(rows // 7, rows - rows // 7), _bad(SPEED_SPOILS), replace=False)
    return _write(path, SPEED_HEADER, lines, SPEED_SPOILS, chosen)


def _review_file(path: Path, number: int, rows: int) -> SampleFile:
    rng = np.random.default_rng(200 + number)

    def picked(choices: list[str]) -> pa.Array:
        return pa.array(choices).take(pa.array(rng.integers(0, len(choices), rows)))

    ids = np.arange(number * rows, (number + 1) * rows)
    product = _text(rng.integers(0, 5_000, rows))
    stars, votes = rng.integers(1, 6, rows), rng.integers(0, 500, rows)
    lines = _joined(
        pa.repeat("US", rows),
        _text(rng.integers(10_000, 9_000_000, rows)),
        _joined("R", _text(ids)),
        _joined("B", product),
        _text(rng.integers(1, 1 << 30, rows)),
        _joined('"Kettle, ', product, ' cups, ""Classic"""'),
        picked(["Kitchen", "Garden", '"Books, used"', "Toys"]),
        _text(stars),
        _text(votes),
        _text(votes + rng.integers(0, 50, rows)),
        picked(["Y", "N"]),
        picked(["Y", "N"]),
        _joined('"', _text(stars), ' stars, said the ""neighbour"""'),
        _joined('"', picked(PRAISE), "\nBought ", _text(votes % 9 + 1), picked(ENDINGS), '"'),
        _joined("2015-", _padded(ids % 12 + 1), "-", _padded(ids % 28 + 1)),
        by=",",
    )
    return _write(path, REVIEW_HEADER, lines, REVIEW_SPOILS, rng.choice(rows, _bad(REVIEW_SPOILS), replace=False))


PRAISE = ["Boils in two minutes, pours well.", "Größe passt, très bien, 良い.", "A gift; she says: fine, thanks."]
ENDINGS = [
    ', kept all.\n\n""Again!"" The lid, though, rattles, and the handle gets hot, so mind it.',
    ", sent one back.\nNo complaint, none at all.",
    ', would buy more. ""Slow post"", sadly.',
]


def _set(column: int, value: str) -> Spoil:
    return lambda cells: [*cells[:column], value, *cells[column + 1 :]]


SPEED_SPOILS: tuple[Spoil, ...] = (
    _set(2, "n/a"),
    _set(7, "4294967296"),
    _set(9, "fast"),
    _set(1, ""),
    lambda cells: cells[:-1],
    lambda cells: [*cells, "surplus"],
)
REVIEW_SPOILS: tuple[Spoil, ...] = (
    _set(7, "five"),
    _set(8, "99999999999"),
    _set(2, ""),
    lambda cells: cells[:-1],
    lambda cells: [*cells, "surplus"],
)


def _bad(spoils: tuple[Spoil, ...]) -> int:
    return len(spoils) * BAD_OF_EACH_KIND


def _write(path: Path, header: str, lines: pa.Array, spoils: tuple[Spoil, ...], chosen: Numbers) -> SampleFile:
    """Spoils the chosen rows, the same number in each way, and writes the file."""
    chosen = np.sort(chosen)
    spoiled = [
        _spoiled(line, spoils[at % len(spoils)]) for at, line in enumerate(lines.take(pa.array(chosen)).to_pylist())
    ]
    mask = np.zeros(len(lines), bool)
    mask[chosen] = True
    lines = pc.replace_with_mask(lines, pa.array(mask), pa.array(spoiled, pa.string()))
    body = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")
    with path.open("wb") as file:
        file.write(f"{header}\n".encode())
        file.write(body[0].as_buffer())
        file.write(b"\n")
    return SampleFile(path, len(lines), tuple(int(row) + 1 for row in chosen))


def _spoiled(line: str, spoil: Spoil) -> str:
    """Cells keep their quotes, so that only the chosen cell changes."""
    cells, quoted = [""], False
    for letter in line:
        quoted ^= letter == '"'
        if letter == "," and not quoted:
            cells.append("")
        else:
            cells[-1] += letter
    return ",".join(spoil(cells))


def _joined(*parts: pa.Array | str, by: str = "") -> pa.Array:
    return pc.binary_join_element_wise(*parts, by)


def _text(numbers: npt.NDArray[np.generic]) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _padded(numbers: Numbers) -> pa.Array:
    return pc.utf8_lpad(_text(numbers), 2, "0")
