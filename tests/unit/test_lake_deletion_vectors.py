"""Deletion vectors are Delta's, byte for byte: other readers must decode ours and we theirs."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyroaring import BitMap

from millrace.lake.actions import DeletionVector
from millrace.lake.deletion_vectors import decode, encode, load_vector, store_vectors, vector_file
from millrace.lake.store import Store
from millrace.model.errors import Corrupt

SMALL = BitMap([1, 5, 70_000])
LARGE = BitMap(range(0, 100_000, 3))


def test_an_inline_vector_of_another_writer_decodes(tmp_path: Path) -> None:
    vector = DeletionVector("i", "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 44, 6)
    assert list(load_vector(Store(tmp_path), vector)) == [3, 4, 7, 11, 18, 29]


def test_the_vectors_of_a_commit_share_a_file_and_none_is_inline(tmp_path: Path) -> None:
    store = Store(tmp_path)
    vectors = store_vectors(store, {"a": SMALL, "b": LARGE, "c": LARGE | SMALL})
    assert [vectors[path].storage for path in "abc"] == ["u", "u", "u"]
    assert {vector_file(store, vectors[path]) for path in "abc"} == {entry.name for entry in store.list("")}
    assert len(store.list("")) == 1
    assert [load_vector(store, vectors[path]) for path in "abc"] == [SMALL, LARGE, LARGE | SMALL]


def test_a_damaged_vector_file_is_not_believed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    vector = store_vectors(store, {"a": LARGE})["a"]
    name = vector_file(store, vector) or ""
    content = bytearray(store.read(name))
    content[len(content) // 2] ^= 1
    store.write(name, bytes(content))
    with pytest.raises(Corrupt, match=name):
        load_vector(store, vector)


def test_a_wrong_magic_or_count_is_not_believed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="magic"):
        decode(b"\0" * 4 + encode(SMALL)[4:])
    vector = store_vectors(Store(tmp_path), {"a": SMALL})["a"]
    with pytest.raises(Corrupt, match="3 positions, not 4"):
        load_vector(Store(tmp_path), replace(vector, cardinality=4))
