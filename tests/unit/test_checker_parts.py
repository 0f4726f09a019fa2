"""Parts of a soak that need no platform: files follow from their seed, open imports are known, foreign folders are spared."""

import json
import struct
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import zstandard

from checker.board import Board
from checker.dump import load
from checker.making import DELETE, STREAM, File, Maker
from checker.shapes import FIRST_SHAPE
from checker.soak import Wish, soak
from checker.tables import Table, next_shape, plan_tables, zipf_keys
from checker.wireformat import open_chunk

CANARIES = {"soak-a": "canary-of-a"}


def made(folder: Path, kind: str, seed: int = 3) -> File:
    maker = Maker(seed, CANARIES, folder, Board(), deletes=True)
    return maker.make(np.random.default_rng(seed), Table("soak-a", "orders", 1.0), 500, kind)


@pytest.mark.parametrize("kind", ["load", STREAM, DELETE])
def test_a_file_follows_from_its_seed_and_is_noted_before_it_is_sent(tmp_path: Path, kind: str) -> None:
    first, again, other = made(tmp_path / "1", kind), made(tmp_path / "2", kind), made(tmp_path / "3", kind, seed=4)
    assert first.body == again.body != other.body
    dump = load(tmp_path / "1")
    assert [(file["key"], file["rows"], file["kind"]) for file in dump.files] == [("3-1", 500, kind)]
    assert dump.rows["row"].to_list() == list(range(1, 501))


def test_streamed_rows_are_json_and_some_delete_their_key(tmp_path: Path) -> None:
    lines = made(tmp_path, STREAM).body.decode().splitlines()
    assert len(lines) == 500
    deleting = [json.loads(line) for line in lines if '"_deleted":true' in line]
    assert deleting
    assert all(set(row) == {"k", "_deleted"} for row in deleting)


def test_an_import_is_open_from_its_admission_to_its_end() -> None:
    board = Board()
    first, second = board.next_file(), board.next_file()
    board.opened(first, 10)
    assert board.open_imports() == []
    board.admitted(first, "imp_1")
    assert board.open_imports() == ["imp_1"]
    board.ended("imp_1")
    assert board.open_imports() == []
    board.ended("imp_2")
    board.opened(second, 10)
    board.admitted(second, "imp_2")
    assert board.open_imports() == [], "its end was heard before the answer that admitted it"


def test_keys_are_few_and_some_are_frequent() -> None:
    counts = pl.Series(zipf_keys(np.random.default_rng(1), 50_000)).value_counts(sort=True)["count"]
    assert counts[0] > 20 * counts[-1]


def test_a_shape_whose_outcome_is_unknown_is_asked_for_again() -> None:
    table = plan_tables()[0]
    rng = np.random.default_rng(1)
    table.wanted = FIRST_SHAPE.with_next()
    assert next_shape(table, rng, set()) == table.wanted
    table.wanted = None
    plain = [next_shape(table, rng, {"widen", "default"}) for _ in range(20)]
    assert all(shape == FIRST_SHAPE.with_next() for shape in plain)


def test_a_chunk_is_opened_and_anything_else_is_left_as_it_is() -> None:
    stamp = json.dumps({"import_id": "imp_1", "number": 0}).encode()
    record = struct.pack("<BI", 1, len(stamp)) + stamp + zstandard.ZstdCompressor().compress(b"1,canary\n")
    assert open_chunk(record) == ({"import_id": "imp_1", "number": 0}, b"1,canary\n")
    assert open_chunk(b"x") == ({}, b"x")


def test_a_folder_with_something_else_in_it_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("dear")
    with pytest.raises(SystemExit):
        soak(Wish(1.0, 1, tmp_path / "home", tmp_path / "dump", 100))
    assert (tmp_path / "home" / "letter").read_text() == "dear"
