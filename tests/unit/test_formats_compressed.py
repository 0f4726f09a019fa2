"""gzip and zstd uploads: many members, bombs, broken streams."""

import gzip
import zlib
from typing import Any

import pytest
import zstandard

from millrace.formats.cut import CutPiece, Cutter, UploadOptions, open_cutter
from millrace.model.errors import Invalid, TooLarge
from millrace.model.table import CsvDialect, Definition, TableDeclaration, define

MIB = 1 << 20
TEXT = b"".join(b"%d,name %d\n" % (n, n * 7919) for n in range(60_000))


def table(file_type: str = "csv") -> Definition:
    schema = {"type": "record", "name": "x", "fields": [{"name": name, "type": "string"} for name in ("a", "b")]}
    return define("t", TableDeclaration("x", schema, file_type=file_type, csv=CsvDialect(header=False)), 1)


def cutter(**options: Any) -> Cutter:
    return open_cutter(table(), UploadOptions(**options))


def cut(data: bytes, step: int = 65536, **options: Any) -> list[CutPiece]:
    opened = cutter(**options)
    pieces = (data[at : at + step] for at in range(0, len(data), step))
    return [*(found for piece in pieces for found in opened.feed(piece)), *opened.finish()]


def compress(kind: str, data: bytes) -> bytes:
    return gzip.compress(data, 3) if kind == "gzip" else zstandard.compress(data)


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
@pytest.mark.parametrize("step", [1, 700, 1 << 20])
def test_members_give_the_pieces_of_the_plain_text(kind: str, step: int) -> None:
    text = TEXT[: 40_000 if step == 1 else None]
    third = len(text) // 3
    data = b"".join(compress(kind, part) for part in (text[:third], b"", text[third:]))
    found = cut(data, step)
    assert [(piece.body, piece.rows, piece.first_row, piece.first_line) for piece in found] == [
        (piece.body, piece.rows, piece.first_row, piece.first_line) for piece in cut(text)
    ]


def test_a_compressed_upload_cannot_be_resumed() -> None:
    opened = cutter()
    assert list(opened.feed(gzip.compress(TEXT, 1)))
    assert opened.resume_point() is None


def test_zeros_behind_a_gzip_stream_are_padding() -> None:
    assert cut(gzip.compress(TEXT) + bytes(5000))[-1].rows == cut(TEXT)[-1].rows


def test_an_empty_upload_that_is_said_to_be_compressed_is_empty() -> None:
    assert [piece.rows for piece in cut(b"", compression="gzip")] == [0]


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_broken_off_stream_gives_its_complete_rows_first(kind: str) -> None:
    opened = cutter(file_name="rows.csv")
    data = compress(kind, TEXT)
    found = list(opened.feed(data[: len(data) * 3 // 4]))
    with pytest.raises(Invalid, match=r"'rows\.csv' ends in the middle") as refused:
        found.extend(opened.finish())
    rows = sum(piece.rows for piece in found)
    assert f"the {kind} stream after {rows} rows" in refused.value.message
    assert 20_000 < rows < 60_000
    assert TEXT.startswith(b"".join(piece.body for piece in found))
    assert found[-1].body.endswith(b"\n")


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_garbage_is_refused(kind: str) -> None:
    data = compress(kind, TEXT)
    with pytest.raises(Invalid, match=f"no readable {kind} stream"):
        cut(TEXT, compression=kind)
    with pytest.raises(Invalid, match=f"no readable {kind} stream"):
        cut(data + b"and something else")


def test_damage_in_the_middle_is_refused() -> None:
    data = gzip.compress(TEXT)
    with pytest.raises(Invalid, match="no readable gzip stream"):
        cut(data[:2000] + bytes(2000) + data[4000:])


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(Invalid, match="'rar'"):
        cut(b"", compression="rar")


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_bomb_is_refused(kind: str) -> None:
    packer: Any = zlib.compressobj(9, wbits=31) if kind == "gzip" else zstandard.ZstdCompressor().compressobj()
    bomb = b"".join(packer.compress(bytes(MIB)) for _ in range(100)) + packer.flush()
    assert len(bomb) < MIB
    with pytest.raises(TooLarge, match="more than 64 MiB at over 500 times"):
        cut(bomb)
    with pytest.raises(TooLarge, match="decompresses to, more than 5000000 bytes"):
        cut(bomb, max_plain_bytes=5_000_000)


def test_well_compressed_files_below_the_free_size_pass() -> None:
    assert sum(piece.rows for piece in cut(compress("zstd", b"1,a\n" * (8 * MIB)))) == 8 * MIB


def test_a_huge_zstd_window_is_refused() -> None:
    wide = zstandard.ZstdCompressionParameters(window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    with pytest.raises(Invalid, match="memory"):
        cut(packer.compress(TEXT) + packer.flush())


def test_noise_behind_a_long_gzip_stream_is_refused() -> None:
    with pytest.raises(Invalid, match="no readable gzip stream"):
        cut(gzip.compress(b"1,x\n" * MIB) + b"\x93noise" * 1000, step=MIB)
