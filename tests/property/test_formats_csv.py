"""Any bytes, cut anywhere: the rows counted are the rows pyarrow parses, and pieces do not depend on how the bytes came."""

import io
import json

import pyarrow as pa
import pyarrow.csv as pacsv
from hypothesis import given
from hypothesis import strategies as st

from millrace.formats.csv_rows import row_spans
from millrace.formats.cut import CutPiece, PieceLimits, UploadOptions, open_cutter
from millrace.model.table import CsvDialect, Definition, TableDeclaration, define
from tests.support.examples import examples

SMALL = PieceLimits(piece_bytes=64, row_bytes=256, kept_bytes=32)
BOM = b"\xef\xbb\xbf"

tokens = st.sampled_from(
    [b'"', b'""', b",", b"\n", b"\r", b"\r\n", b"\n\n", b"a", b"bc", b" ", b"\0", b"\xff", BOM, b"x" * 70, b'"y\ny"']
)
texts = st.lists(tokens, max_size=120).map(b"".join)
sizes = st.lists(st.integers(1, 90), min_size=1, max_size=8)


def table(*, header: bool = False) -> Definition:
    fields = [{"name": name, "type": "string"} for name in ("a", "b")]
    return define(
        "t", TableDeclaration("x", {"type": "record", "name": "x", "fields": fields}, csv=CsvDialect(header)), 1
    )


def cut_all(text: bytes, steps: list[int], resume: dict[str, object] | None = None) -> list[CutPiece]:
    cutter = open_cutter(table(), UploadOptions(), limits=SMALL, resume=resume)
    cuts, at, turn = [], 0, 0
    while at < len(text):
        cuts += cutter.feed(text[at : at + steps[turn % len(steps)]])
        at += steps[turn % len(steps)]
        turn += 1
    return [*cuts, *cutter.finish()]


def parsed_rows(body: bytes) -> int:
    """How many rows pyarrow finds, whatever their number of cells. (Its handler cannot be shown what is not UTF-8.)"""
    body = body.replace(b"\xff", b"?")
    wrong: list[object] = []

    def skip(row: object) -> str:
        wrong.append(row)
        return "skip"

    read = pacsv.ReadOptions(use_threads=False, block_size=len(body) + 1, column_names=["a", "b"])
    parse = pacsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=True, invalid_row_handler=skip)
    convert = pacsv.ConvertOptions(column_types={"a": pa.binary(), "b": pa.binary()})
    if not body.strip(b"\r\n"):
        return 0
    good = pacsv.read_csv(io.BytesIO(body), read, parse, convert)
    return int(good.num_rows) + len(wrong)


@given(texts.filter(lambda text: not text.startswith(BOM)))
@examples(250)
def test_spans_are_the_rows_that_pyarrow_parses(text: bytes) -> None:
    spans = row_spans(text, ",", '"')
    rows = [text[start:end] for start, end in zip(spans.starts, spans.ends, strict=True)]
    assert len(rows) == parsed_rows(text)
    assert all(parsed_rows(b"\n" + row) == 1 for row in rows)


@given(texts.filter(lambda text: not text.startswith(BOM)))
@examples(150)
def test_lines_of_spans_are_the_line_ends_before_them(text: bytes) -> None:
    spans = row_spans(text, ",", '"')
    for start, line in zip(spans.starts, spans.lines, strict=True):
        # A separator behind the prefix keeps its last line end from being one with what follows.
        assert (
            line
            == len((text[:start] + b"|").decode("latin-1").replace("\r\n", "\n").replace("\r", "\n").split("\n")) - 1
        )


@given(texts, sizes)
@examples(250)
def test_every_piece_has_the_rows_that_pyarrow_parses(text: bytes, steps: list[int]) -> None:
    row = 1
    for cut in cut_all(text, steps):
        assert cut.first_row == row
        assert cut.rows == (1 if cut.oversize else parsed_rows(cut.body)) == len(row_spans_or_one(cut))
        row += cut.rows


def row_spans_or_one(cut: CutPiece) -> list[int]:
    return [0] if cut.oversize else list(row_spans(cut.body, ",", '"').starts)


def test_a_byte_order_mark_at_the_start_of_a_later_piece_stays_text() -> None:
    text = b"a" * 63 + b"\n" + BOM + b'"x\ny",b\n'
    first, second = cut_all(text, [len(text)])
    assert (first.rows, second.rows) == (1, 2) == (1, parsed_rows(second.body))
    assert second.first_line + int(row_spans(second.body, ",", '"').lines[0]) == 2


@given(texts, sizes)
@examples(250)
def test_pieces_do_not_depend_on_how_the_bytes_arrive(text: bytes, steps: list[int]) -> None:
    assert cut_all(text, steps) == cut_all(text, [len(text) or 1])


@given(texts)
@examples(250)
def test_pieces_hold_every_row_of_the_text_once_and_in_order(text: bytes) -> None:
    cuts = cut_all(text, [50])
    plain = text
    while plain.startswith(BOM):
        plain = plain[len(BOM) :]
    if any(cut.oversize for cut in cuts):
        return
    spans = row_spans(plain, ",", '"')
    expected = [
        (plain[start:end], line) for start, end, line in zip(spans.starts, spans.ends, spans.lines, strict=True)
    ]
    found = []
    for cut in cuts:
        inner = row_spans(cut.body, ",", '"')
        found += [
            (cut.body[start:end], cut.first_line - 1 + line)
            for start, end, line in zip(inner.starts, inner.ends, inner.lines, strict=True)
        ]
    assert found == expected


@given(texts, st.integers(0, 30))
@examples(250)
def test_resuming_behind_any_piece_gives_the_remaining_pieces(text: bytes, stop: int) -> None:
    cutter = open_cutter(table(), UploadOptions(), limits=SMALL)
    cuts: list[CutPiece] = []
    points = []
    for source in (cutter.feed(text), cutter.finish()):
        for cut in source:
            cuts.append(cut)
            points.append(cutter.resume_point())
    point = points[stop % len(points)]
    assert point is not None
    point = json.loads(json.dumps(point))
    assert cut_all(text[point["offset"] :], [37], resume=point) == cuts[stop % len(cuts) + 1 :]


def read_from(text: bytes, start: int) -> tuple[int, bool]:
    """Octet by octet: where the last whole row ends, and whether the text ends inside quotes."""
    row_end, quoted, at_start, place = start, False, True, start
    while place < len(text):
        octet = text[place : place + 1]
        if quoted:
            if octet == b'"' and text[place + 1 : place + 2] == b'"':
                place += 1
            elif octet == b'"':
                quoted, at_start = False, False
        elif octet == b'"' and at_start:
            quoted = True
        else:
            at_start = octet in b",\r\n"
            # A line end of two octets ends with its second.
            if octet in b"\r\n" and text[place : place + 2] != b"\r\n":
                row_end = place + 1
        place += 1
    return row_end, quoted


def rows_in(body: bytes, line: int) -> list[tuple[bytes, int]]:
    spans = row_spans(body, ",", '"')
    return [(body[a:b], line + lines) for a, b, lines in zip(spans.starts, spans.ends, spans.lines, strict=True)]


def expected_rows(text: bytes) -> list[tuple[bytes, int]]:
    """A line whose quote is open when the text ends is a row; reading goes on behind it."""
    rows, place, line = [], 0, 1
    end, quoted = read_from(text, 0)
    while quoted:
        rows += rows_in(text[place:end], line)
        broken = text[end:].splitlines(keepends=True)[0]
        line += len(text[place:end].splitlines())
        rows.append((broken.rstrip(b"\r\n"), line))
        place, line = end + len(broken), line + 1
        end, quoted = read_from(text, place)
    return rows + rows_in(text[place:], line)


@given(texts.filter(lambda text: not text.startswith(BOM)))
@examples(250)
def test_a_quote_left_open_at_the_end_costs_its_line_alone(text: bytes) -> None:
    cutter = open_cutter(table(), UploadOptions(), limits=PieceLimits(piece_bytes=64, row_bytes=1 << 20))
    found = []
    for cut in [*cutter.feed(text), *cutter.finish()]:
        found += [(cut.body, cut.first_line)] if cut.oversize else rows_in(cut.body, cut.first_line)
    assert found == expected_rows(text)


@given(texts, sizes)
@examples(150)
def test_pieces_stay_near_the_target(text: bytes, steps: list[int]) -> None:
    for cut in cut_all(text, steps):
        assert len(cut.body) <= SMALL.piece_bytes + 1 or cut.rows == 1
        assert len(cut.body) <= (SMALL.kept_bytes if cut.oversize else SMALL.row_bytes + 1)
