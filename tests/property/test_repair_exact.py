"""For random rejected rows and random amendments, replays and discards: every row is open or closed once, and counts are
those of the claims."""

from base64 import b64encode
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from millrace.api.repair.corrected import CorrectedFile
from millrace.api.repair.row_matching import match_keys, match_numbers
from millrace.control.claims import AMENDED, DISCARDED, REPLAYED, ClosedRows
from millrace.formats.numbered import without_numbers
from millrace.formats.pieces import CutPiece
from millrace.model.chunk import TextLayout
from millrace.model.errors import Refused
from millrace.model.imports import AMEND, COMPLETED, Import
from millrace.model.ops.imports import CancelImport
from millrace.model.ops.rows import DiscardErrors, ReplayErrors
from millrace.read.row_states import OPEN, RowStates
from millrace.validate.keyed import KeyedRows
from tests.support.control import TableLog
from tests.support.examples import examples

MOST = 40
numbers = st.sets(st.integers(1, MOST), max_size=MOST)
actions = st.lists(st.tuples(st.sampled_from(["amend", "replay", "discard"]), numbers, st.booleans()), max_size=8)


def named(rows: set[int]) -> str:
    return b64encode(BitMap64(rows).serialize()).decode()


@given(numbers.filter(bool), actions)
@examples(300)
def test_every_row_is_open_or_closed_once(rejected: set[int], asked: list[tuple[str, set[int], bool]]) -> None:
    """Amendments may be cancelled; the log decides in what order the ops come."""
    log = TableLog()
    log.define()
    log.load("imp_1")
    first = log.imported("imp_1").first_version
    owned: dict[str, set[int]] = {way: set() for way in (AMENDED, REPLAYED, DISCARDED)}
    for number, (what, chosen, completes) in enumerate(asked):
        rows, op_id = chosen & rejected, f"imp_{number + 2}"
        taken = set().union(*owned.values())
        if what == "amend":
            answer = log.begin(op_id, kind=AMEND, of="imp_1", rows=named(rows))
        elif what == "replay":
            body = {"of": "imp_1", "rows": named(rows), "rows_count": len(rows), "chunks": 1, "first_version": first}
            answer = log.apply(ReplayErrors, "notes", **body, op_id=op_id)
        else:
            answer = log.apply(DiscardErrors, "notes", of="imp_1", rows=named(rows), op_id=op_id)
        assert (answer.refusal is not None) == bool(rows & taken), "exactly one gets a row"
        if answer.refusal is not None:
            continue
        if what != "discard" and not completes:
            log.apply(CancelImport, op_id)
            log.settle(op_id, accepted=0, rejected=0, ignored=10)
            continue
        if what != "discard":
            if what == "amend":
                log.end(op_id)
            log.settle(op_id, read=1, accepted=1, rejected=0)
        owned[{"amend": AMENDED, "replay": REPLAYED, "discard": DISCARDED}[what]] |= rows
    closed = ClosedRows.read(log.store.claims.get("imp_1"))
    assert {way: set(closed.of(way)) for way in owned} == owned
    assert sum(map(len, owned.values())) == len(closed.rows), "no row is closed twice"
    counts = closed.counts(len(rejected))
    assert counts == {OPEN: len(rejected - set(closed.rows)), **{way: len(rows) for way, rows in owned.items()}}
    assert ClosedRows.read(closed.to_bytes()) == closed or not closed.rows
    states = RowStates({way: np.asarray(rows.to_array(), np.int64) for way, rows in closed.by_way.items()})
    every = np.array(sorted(rejected), np.int64)
    expected = [next((way for way, rows in owned.items() if row in rows), OPEN) for row in sorted(rejected)]
    assert states.of(every) == expected
    assert Counter(expected) == {way: count for way, count in states.count(every).items() if count}


ORIGIN = Import("imp_1", "acme", "notes", "f", COMPLETED, 1, 1, (), 1)


@given(st.lists(st.integers(-1, MOST), max_size=12), numbers, numbers, st.booleans())
@examples(300)
def test_numbers_close_the_rows_that_they_name(
    corrected: list[int], rejected: set[int], closed: set[int], add: bool
) -> None:
    named_rows = [row for row in corrected if row >= 0]
    fits = len(set(named_rows)) == len(named_rows) and set(named_rows) <= rejected - closed and bool(named_rows)
    fits = fits and (add or len(named_rows) == len(corrected))
    given_numbers = np.array(corrected, np.int64)
    try:
        found = match_numbers(given_numbers, ORIGIN, BitMap64(rejected), BitMap64(closed & rejected), add=add)
    except Refused:
        assert not fits
        return
    assert fits
    assert (set(found.rows), found.added) == (set(named_rows), len(corrected) - len(named_rows))


def keyed(keys: list[int], rows: list[int]) -> KeyedRows:
    lanes = np.array(keys, np.uint64)
    # Half of a hashed key may be that of another key.
    return KeyedRows(np.array(rows, np.int64), lanes // np.uint64(2), lanes)


@given(st.lists(st.integers(0, 9), max_size=10), st.lists(st.integers(0, 9), max_size=14), st.booleans())
@examples(300)
def test_keys_close_all_rows_that_have_them_or_none(corrected: list[int], rejected: list[int], add: bool) -> None:
    here, there = Counter(corrected), Counter(rejected)
    doubtful = any(there[key] > times for key, times in here.items())
    left_over = sum(max(times - there[key], 0) for key, times in here.items())
    closes = {place + 1 for place, key in enumerate(rejected) if key in here}
    fits = not doubtful and (add or not left_over) and bool(closes)
    file = CorrectedFile(None, {}, len(corrected), None, keyed(corrected, list(range(len(corrected)))))  # type: ignore[arg-type]
    try:
        found = match_keys(file, ORIGIN, keyed(rejected, list(range(1, len(rejected) + 1))), add=add)
    except Refused:
        assert not fits
        return
    assert fits
    assert (set(found.rows), found.added) == (closes, left_over)


cells = st.text(st.sampled_from('ab,"\n é;'), max_size=6)


@given(st.lists(st.tuples(st.integers(0, 10**9), cells, cells), min_size=1, max_size=8), st.booleans(), st.booleans())
@examples(300)
def test_what_is_left_without_the_numbers_are_the_rows(
    rows: list[tuple[int, str, str]], at_the_end: bool, quoted: bool
) -> None:
    def cell(text: str) -> str:
        return '"' + text.replace('"', '""') + '"'

    plain = [f"{cell(a)},{cell(b)}" for _, a, b in rows]
    marks = [f'"{number}"' if quoted else str(number) for number, _, _ in rows]
    pairs = zip(plain, marks, strict=True)
    lines = [f"{row},{mark}" if at_the_end else f"{mark},{row}" for row, mark in pairs]
    columns = ("a", "b", "_row") if at_the_end else ("_row", "a", "b")
    body = "".join(line + "\n" for line in lines).encode()
    found = without_numbers(CutPiece(body, "csv", 1, 2, len(rows), TextLayout(columns, ",", '"', "")))
    assert found.numbers is not None
    assert found.numbers.tolist() == [number for number, _, _ in rows]
    assert found.body == "".join(row + "\n" for row in plain).encode()
    assert found.layout is not None
    assert found.layout.columns == ("a", "b")
