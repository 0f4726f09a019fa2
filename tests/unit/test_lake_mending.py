"""Tables of earlier releases become what every engine reads, and readers see no change."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from millrace.lake.deletion_vectors import _z85, encode
from millrace.lake.log import load
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from tests.support.foreign import commit, file_of, last_action, removals
from tests.support.lake import KEYED, apply_rows, arrow_rows, content, read_by_deltalake


def forget_mending(root: Path) -> None:
    """The table as an earlier release made it."""
    metadata = last_action(root, "metaData")
    metadata["configuration"].pop("millrace.exactTypes")
    commit(root, {"metaData": metadata})


def is_noted(root: Path) -> bool:
    return "millrace.exactTypes" in last_action(root, "metaData")["configuration"]


def test_inline_vectors_move_into_files(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(key, 1) for key in range(10)])
    apply_rows(table, [(3, 2)])
    data = encode(BitMap([4, 5]))
    added = file_of(tmp_path, arrow_rows([(key, 1) for key in range(20, 30)]))
    inline = {"storageType": "i", "pathOrInlineDv": _z85(data), "sizeInBytes": len(data), "cardinality": 2}
    commit(tmp_path, {"add": {**added["add"], "deletionVector": inline}})
    before = content(table)
    table.maintain()
    kinds = {file.deletion_vector.storage for file in load(table.store).files.values() if file.deletion_vector}
    assert kinds == {"u"}
    assert content(table) == read_by_deltalake(tmp_path) == before
    version = load(table.store).version
    table.maintain()
    assert load(table.store).version == version


def test_files_of_narrower_types_are_rewritten_once(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(1, 1)])
    rows = arrow_rows([(7, 1), (8, 1)])
    narrow = rows.set_column(0, "id", rows["id"].cast(pa.int32()))
    commit(tmp_path, *removals(tmp_path), file_of(tmp_path, narrow))
    forget_mending(tmp_path)
    apply_rows(table, [(7, 2)])
    table.maintain()
    files = load(table.store).files.values()
    assert {pq.read_schema(tmp_path / file.name).field("id").type for file in files} == {pa.int64()}
    assert content(table) == read_by_deltalake(tmp_path) == [(7, 2), (8, 1)]
    assert is_noted(tmp_path)


def test_a_new_table_needs_no_mending(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(1, 1)])
    assert is_noted(tmp_path)
    table.maintain()
    assert load(table.store).version == 0
