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
SPEED_FILES, SPEED_ROWS, SPEED_UPDATES = 3, 350_000, 50_000
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
    """`keys`: how many rows the table holds when all files are in."""

    tenant: str
    table: str
    files: tuple[SampleFile, ...]
    keys: int
    question: str
    answer: list[object]


def speed_sample(folder: Path) -> Sample:
    """The last file's last rows update the first rows of the first file, so the newest of each must win."""
    files = [_speed_file(folder / f"onu-{number + 1}.csv", number) for number in range(SPEED_FILES)]
    keys = sum(file.rows - len(file.bad) for file in files) - SPEED_UPDATES
    question = "select count(*) as onus, count(*) filter (where TIME >= '2024-02') as updated from client_a.analytics"
    return Sample("client_a", "analytics", tuple(files), keys, question, [keys, SPEED_UPDATES])


def review_sample(folder: Path) -> Sample:
    files = [_review_file(folder / f"reviews-{number + 1}.csv", number) for number in range(REVIEW_FILES)]
    keys = sum(file.rows - len(file.bad) for file in files)
    question = (
        "select count(*) as reviews, count(*) filter (where contains(review_body, chr(10))) as with_line_breaks "
        "from client_b.product_reviews"
    )
    return Sample("client_b", "product_reviews", tuple(files), keys, question, [keys, keys])


def _speed_file(path: Path, number: int) -> SampleFile:
    rng = np.random.default_rng(100 + number)
    onu = np.arange(number * SPEED_ROWS, (number + 1) * SPEED_ROWS)
    updates = SPEED_UPDATES if number == SPEED_FILES - 1 else 0
    onu[SPEED_ROWS - updates :] = np.arange(updates)
    updated = np.arange(SPEED_ROWS) >= SPEED_ROWS - updates
    lines = _lines(
        _text(onu % 63 + 1),
        _joined(["10.", _text(onu // 65_536 % 256), ".", _text(onu // 256 % 256), ".", _text(onu % 256)]),
        *(
            _text(rng.integers(low, high, SPEED_ROWS))
            for low, high in ((1, 1 << 28), (0, 4), (0, 16), (0, 32), (0, 128))
        ),
        _text(onu),
        _joined(
            ["2024-", _padded(np.where(updated, 2, 1)), "-", _padded(onu % 28 + 1), " ", _padded(onu % 24), ":00:00"]
        ),
        _text(np.round(rng.random(SPEED_ROWS) * 1e6, 3)),
        _text(np.round(rng.random(SPEED_ROWS) * 1e6, 3)),
    )
    # Rows that are updated later, or update, stay good: then the table's size follows from the counts.
    return _write(path, SPEED_HEADER, lines, SPEED_SPOILS, rng, (SPEED_UPDATES, SPEED_ROWS - SPEED_UPDATES))


def _review_file(path: Path, number: int) -> SampleFile:
    rng = np.random.default_rng(200 + number)
    ids = np.arange(number * REVIEW_ROWS, (number + 1) * REVIEW_ROWS)
    product = _text(rng.integers(0, 5_000, REVIEW_ROWS))
    stars, votes = rng.integers(1, 6, REVIEW_ROWS), rng.integers(0, 500, REVIEW_ROWS)
    lines = _lines(
        pa.repeat("US", REVIEW_ROWS),
        _text(rng.integers(10_000, 9_000_000, REVIEW_ROWS)),
        _joined(["R", _text(ids)]),
        _joined(["B", product]),
        _text(rng.integers(1, 1 << 30, REVIEW_ROWS)),
        _joined(['"Kettle, ', product, ' cups, ""Classic"""']),
        _picked(rng, ["Kitchen", "Garden", '"Books, used"', "Toys"]),
        _text(stars),
        _text(votes),
        _text(votes + rng.integers(0, 50, REVIEW_ROWS)),
        _picked(rng, ["Y", "N"]),
        _picked(rng, ["Y", "N"]),
        _joined(['"', _text(stars), ' stars, said the ""neighbour"""']),
        _joined(['"', _picked(rng, PRAISE), "\nBought ", _text(votes % 9 + 1), _picked(rng, ENDINGS), '"']),
        _joined(["2015-", _padded(ids % 12 + 1), "-", _padded(ids % 28 + 1)]),
    )  # fmt: skip
    return _write(path, REVIEW_HEADER, lines, REVIEW_SPOILS, rng, (0, REVIEW_ROWS))


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


def _write(
    path: Path,
    header: str,
    lines: pa.Array,
    spoils: tuple[Spoil, ...],
    rng: np.random.Generator,
    among: tuple[int, int],
) -> SampleFile:
    """Spoils some rows of the range `among`, the same number in each way, and writes the file."""
    chosen = np.sort(rng.choice(np.arange(*among), len(spoils) * BAD_OF_EACH_KIND, replace=False))
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
    """Cells are kept as they are quoted, so that only the chosen one changes."""
    cells, quoted = [""], False
    for letter in line:
        quoted ^= letter == '"'
        if letter == "," and not quoted:
            cells.append("")
        else:
            cells[-1] += letter
    return ",".join(spoil(cells))


def _lines(*columns: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*columns, ",")


def _joined(parts: list[pa.Array | str]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _text(numbers: npt.NDArray[np.generic]) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _padded(numbers: Numbers) -> pa.Array:
    return pc.utf8_lpad(_text(numbers), 2, "0")


def _picked(rng: np.random.Generator, choices: list[str]) -> pa.Array:
    return pa.array(choices).take(pa.array(rng.integers(0, len(choices), REVIEW_ROWS)))
