"""Any bytes as JSON Lines: spans are the lines with ink, and pieces do not depend on how the bytes came."""

from hypothesis import given
from hypothesis import strategies as st

from millrace.formats.cut import CutPiece, PieceLimits, UploadOptions, open_cutter
from millrace.formats.line_cut import line_spans
from millrace.model.table import Definition, TableDeclaration, define
from tests.support.examples import examples

SMALL = PieceLimits(piece_bytes=64, row_bytes=128, kept_bytes=32)
tokens = st.sampled_from([b"\n", b"\r\n", b"\n \n", b"\t", b" ", b"\r", b'{"a": 1}', b"\0", b"\xff", b"x" * 70])
texts = st.lists(tokens, max_size=60).map(lambda parts: b"x" + b"".join(parts))


def table() -> Definition:
    schema = {"type": "record", "name": "x", "fields": [{"name": "a", "type": "int"}]}
    return define("t", TableDeclaration("x", schema, file_type="jsonl"), 1)


def cut_all(text: bytes, step: int, resume: dict[str, object] | None = None) -> list[CutPiece]:
    cutter = open_cutter(table(), UploadOptions(), limits=SMALL, resume=resume)
    pieces = (text[at : at + step] for at in range(0, len(text), step))
    return [*(cut for piece in pieces for cut in cutter.feed(piece)), *cutter.finish()]


@given(texts)
@examples(250)
def test_spans_are_the_lines_that_are_not_blank(text: bytes) -> None:
    spans = line_spans(text)
    found = [(text[start:end], line) for start, end, line in zip(spans.starts, spans.ends, spans.lines, strict=True)]
    lines = enumerate(text.split(b"\n"))
    assert found == [(line.removesuffix(b"\r"), number) for number, line in lines if line.strip(b" \t\r")]


@given(texts, st.integers(1, 100))
@examples(150)
def test_pieces_hold_every_row_whatever_the_arrival(text: bytes, step: int) -> None:
    cuts = cut_all(text, step)
    assert cuts == cut_all(text, len(text))
    whole = line_spans(text)
    rows = [(text[start:end], line) for start, end, line in zip(whole.starts, whole.ends, whole.lines, strict=True)]
    found = []
    for cut in cuts:
        spans = line_spans(cut.body)
        assert cut.rows == len(spans.starts)
        assert cut.first_row == len(found) + 1
        found += [
            (cut.body[start:end], cut.first_line - 1 + line)
            for start, end, line in zip(spans.starts, spans.ends, spans.lines, strict=True)
        ]
    if not any(cut.oversize for cut in cuts):
        assert found == rows
    assert len(found) == len(rows)


@given(texts, st.integers(0, 20))
@examples(200)
def test_resuming_gives_the_remaining_pieces(text: bytes, stop: int) -> None:
    cutter = open_cutter(table(), UploadOptions(), limits=SMALL)
    cuts, points = [], []
    for source in (cutter.feed(text), cutter.finish()):
        for cut in source:
            cuts.append(cut)
            points.append(cutter.resume_point())
    point = points[stop % len(points)]
    assert point is not None
    assert cut_all(text[point["offset"] :], 29, resume=point) == cuts[stop % len(cuts) + 1 :]
