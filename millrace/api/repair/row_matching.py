"""Which rejected rows a file of corrected rows replaces: by the numbers that it names, else by primary key.

Several rejected rows may have one key. They are replaced only together: by as many corrected rows with that key."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from millrace.api.jobs.rejected_rows import written_form
from millrace.api.repair.corrected import CorrectedFile, chunk_header
from millrace.formats.numbered import NO_NUMBER, Numbers
from millrace.model.errors import Clash, Invalid
from millrace.model.imports import Import
from millrace.model.table import Definition
from millrace.read.row_states import numbers_of
from millrace.validate.keyed import NO_KEYS, KeyedRows, keyed_rows

NAMED_AT_MOST = 10
AS_FILE = "`millrace errors {} --as-file FILE` writes the rejected rows with their numbers in the column _row."


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """The rejected rows that are closed, and how many corrected rows replace none."""

    rows: BitMap64
    added: int


def match_numbers(
    corrected: Numbers, origin: Import, rejected: BitMap64, closed: BitMap64, *, add: bool
) -> MatchedRows:
    named = corrected[corrected != NO_NUMBER]
    numbers, times = np.unique(named, return_counts=True)
    if (times > 1).any():
        raise Invalid(
            f"The file corrects {listed(numbers[times > 1])} more than once.",
            remedy="Give one row for each rejected row.",
            code="row_twice",
        )
    wanted = BitMap64(numbers)
    _refuse_strangers(wanted - rejected, origin)
    if taken := wanted & closed:
        raise Clash(
            f"{listed(taken)} of {origin.id} {_were(taken)} replayed, amended or discarded before.",
            remedy=f"Leave them out; `millrace errors {origin.id} --state open` shows the others.",
            code="claimed",
        )
    return _checked(wanted, np.flatnonzero(corrected == NO_NUMBER) + 1, origin, add=add)


def match_keys(corrected: CorrectedFile, origin: Import, rejected: KeyedRows, *, add: bool) -> MatchedRows:
    """`rejected`: the keys of the open rejected rows by their numbers."""
    keys = corrected.keys
    candidates = rejected
    kinds, ours, theirs = _same_keys(keys, candidates)
    here, there = np.bincount(ours, minlength=kinds), np.bincount(theirs, minlength=kinds)
    doubtful = (here > 0) & (there > here)
    if doubtful.any():
        raise Clash(
            f"{listed(candidates.rows[doubtful[theirs]])} of {origin.id} have the same key, and fewer corrected rows "
            "have it: nobody can tell which of them are meant.",
            remedy=f"Name the rows by number. {AS_FILE.format(origin.id)}",
            code="ambiguous_key",
        )
    rows = BitMap64(candidates.rows[here[theirs] > 0])
    unmatched = np.ones(corrected.rows, bool)
    # With more corrected rows than rejected ones, the first of them replace these.
    order = np.argsort(ours, kind="stable")
    rank = np.arange(len(ours)) - np.searchsorted(ours[order], ours[order])
    unmatched[keys.rows[order[rank < there[ours[order]]]]] = False
    return _checked(rows, np.flatnonzero(unmatched) + 1, origin, add=add)


def _same_keys(ours: KeyedRows, theirs: KeyedRows) -> tuple[int, npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """A number for each different key, of our rows and of theirs."""
    lanes = [np.concatenate(pair) for pair in ((ours.first, theirs.first), (ours.second, theirs.second))]
    different, which = np.unique(np.stack(lanes, axis=1), axis=0, return_inverse=True)
    which = which.reshape(-1)
    return len(different), which[: len(ours.rows)], which[len(ours.rows) :]


def keys_of_rejected(
    batches: Iterable[pa.RecordBatch], origin: Import, definition: Definition, wanted: KeyedRows
) -> KeyedRows:
    """The keys of rejected rows, as far as they can be read, with the rows' numbers. Few rows are corrected: of millions of
    rejected rows only those are kept that have, by half of its hash, one of the wanted keys."""
    few = np.unique(wanted.first)
    parts = [NO_KEYS, *(_near(part, few) for rows in batches for part in _keys_of(rows, origin, definition))]
    columns = zip(*((part.rows, part.first, part.second) for part in parts), strict=True)
    return KeyedRows(*(np.concatenate(column) for column in columns))


def _near(keys: KeyedRows, wanted: npt.NDArray[np.uint64]) -> KeyedRows:
    near = np.isin(keys.first, wanted)
    return KeyedRows(keys.rows[near], keys.first[near], keys.second[near])


def _keys_of(rows: pa.RecordBatch, origin: Import, definition: Definition) -> Iterator[KeyedRows]:
    if not rows.num_rows:
        return
    encoding, layout = written_form(origin)
    body = b"".join(pc.binary_join_element_wise(rows["raw"], b"", b"\n").to_pylist())
    header = chunk_header(encoding, rows.num_rows, definition, layout=layout, deletes=origin.deletes)
    found = keyed_rows(header, body, definition)
    if found is not None:
        yield KeyedRows(numbers_of(rows)[found.rows], found.first, found.second)
    elif rows.num_rows > 1:
        half = rows.num_rows // 2
        yield from _keys_of(rows.slice(0, half), origin, definition)
        yield from _keys_of(rows.slice(half), origin, definition)


def _checked(rows: BitMap64, unmatched: Numbers, origin: Import, *, add: bool) -> MatchedRows:
    if len(unmatched) and not add:
        raise Invalid(
            f"{listed(unmatched)} of the file {'replaces' if len(unmatched) == 1 else 'replace'} no open rejected row of "
            f"{origin.id}.",
            remedy=f"Leave them out, or add them with --add (add=true). {AS_FILE.format(origin.id)}",
            code="no_match",
        )
    if not rows:
        raise Invalid(
            f"No row of the file replaces a rejected row of {origin.id}.",
            remedy="Import the file, if its rows are new ones.",
            code="no_match",
        )
    return MatchedRows(rows, len(unmatched))


def _refuse_strangers(strangers: BitMap64, origin: Import) -> None:
    if strangers:
        raise Invalid(
            f"{listed(strangers)} of {origin.id} {_were(strangers)} not rejected.",
            remedy=f"`millrace errors {origin.id}` shows which were.",
            code="no_match",
        )


def listed(rows: Iterable[int]) -> str:
    every = [int(row) for row in rows]
    shown = ", ".join(f"{row:,}" for row in every[:NAMED_AT_MOST])
    more = f" and {len(every) - NAMED_AT_MOST:,} more" if len(every) > NAMED_AT_MOST else ""
    return f"{'Row' if len(every) == 1 else 'Rows'} {shown}{more}"


def _were(rows: BitMap64) -> str:
    return "was" if len(rows) == 1 else "were"
