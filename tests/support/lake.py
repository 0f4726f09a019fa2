"""Lake tables in tests: rows by (key, version), staged and applied, read back by every plain Delta reader."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import deltalake
import polars as pl
import pyarrow as pa

from millrace.lake.log import load
from millrace.lake.read import scan
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import StagedChunk, StagedFile, write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from tests.support.duckdb_delta import delta_scan

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
KEYED = TableSpec("keyed", SCHEMA, key=("id",))
KEYLESS = TableSpec("keyless", SCHEMA)

Rows = Sequence[tuple[int, int]]
"""(id, version) of each row; its text tells both."""


def text_of(key: int, version: int) -> str:
    return f"{key} at {version}"


def arrow_rows(rows: Rows) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([key for key, _ in rows], pa.int64()),
            "text": pa.array([text_of(*row) for row in rows], pa.string()),
            "_version": pa.array([version for _, version in rows], pa.int64()),
            "_import": pa.array(["import"] * len(rows), pa.string()),
            "_row": pa.array(range(1, len(rows) + 1), pa.int64()),
        }
    )


def stage(store: Store, rows: Rows, key: Sequence[str] = ("id",), prefix: str = "part") -> StagedFile:
    return write_data_file(store, arrow_rows(rows), key, prefix)


def stage_mixed(store: Store, rows: Sequence[tuple[int, int, bool]], prefix: str = "part") -> StagedFile:
    """Rows of which some delete their key: (id, version, whether it does)."""
    deleted = pa.array([deletes for _, _, deletes in rows])
    table = arrow_rows([(key, version) for key, version, _ in rows]).append_column("_deleted", deleted)
    return write_data_file(store, table, ("id",), prefix)


def stage_chunks(store: Store, chunks: Mapping[str, Rows], prefix: str = "part") -> StagedFile:
    """A file of a table without a key, made of whole chunks."""
    rows, described = [], []
    for number, (chunk_id, part) in enumerate(chunks.items()):
        described.append(StagedChunk(chunk_id, len(rows), len(part), number))
        rows += part
    return write_data_file(store, arrow_rows(rows), (), prefix, described)


def apply_rows(table: LakeTable, *files: Rows) -> None:
    table.apply([stage(table.store, rows, table.spec.key) for rows in files])


def content(table: LakeTable, version: int | None = None) -> list[tuple[int, int]]:
    """(id, version) of every live row, sorted; checks that no row was mixed from two."""
    rows = scan(table.store, load(table.store, version))
    assert rows["text"].to_pylist() == [
        text_of(key, at) for key, at in zip(rows["id"].to_pylist(), rows["_version"].to_pylist(), strict=True)
    ]
    return sorted(zip(rows["id"].to_pylist(), rows["_version"].to_pylist(), strict=True))


def newest(rows: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What a table should hold: the greatest version of each key."""
    model: dict[int, int] = {}
    for key, version in rows:
        model[key] = max(version, model.get(key, version))
    return sorted(model.items())


def assert_keys_once_in_every_version(table: LakeTable, first: int = 0) -> None:
    for version in range(first, load(table.store).version + 1):
        keys = [key for key, _ in content(table, version)]
        assert len(keys) == len(set(keys)), f"version {version} shows a key twice"


def read_by_polars(root: Path, version: int | None = None) -> list[tuple[int, int]]:
    frame = pl.scan_delta(str(root), version=version).select("id", "_version").collect()
    return sorted(frame.rows())


def read_by_deltalake(root: Path, version: int | None = None) -> list[tuple[int, int]]:
    rows = pa.table(deltalake.DeltaTable(str(root), version=version).scan().read_all())
    return sorted(zip(rows["id"].to_pylist(), rows["_version"].to_pylist(), strict=True))


def read_by_duckdb(root: Path, version: int | None = None) -> list[tuple[int, int]]:
    """By its own `delta_scan`."""
    return sorted((int(str(key)), int(str(at))) for key, at in delta_scan(root, version, "id", "_version"))


def read_by_query(root: Path, version: int | None = None) -> list[tuple[int, int]]:
    table = deltalake.DeltaTable(str(root), version=version)
    rows = pa.table(deltalake.QueryBuilder().register("t", table).execute("select id, _version from t").read_all())
    return sorted(zip(rows["id"].to_pylist(), rows["_version"].to_pylist(), strict=True))


def read_columns(root: Path, *columns: str) -> dict[str, list[tuple[object, ...]]]:
    """Rows of the newest version, by reader."""
    table = pa.table(deltalake.DeltaTable(str(root)).scan().read_all()).select(list(columns))
    return {
        "polars": pl.scan_delta(str(root)).select(*columns).collect().rows(),
        "deltalake": [tuple(row.values()) for row in table.to_pylist()],
        "duckdb": delta_scan(root, None, *columns),
    }


READERS = (read_by_polars, read_by_deltalake, read_by_duckdb, read_by_query)


class RivalStore(Store):
    """Lets another writer commit just before each of the first `rivals` commits through this store."""

    def __init__(self, root: Path, rivals: Iterable[Callable[[], object]]) -> None:
        super().__init__(root)
        self._rivals = list(rivals)

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        if name.startswith("_delta_log/") and self._rivals:
            self._rivals.pop(0)()
        return super().put_if_absent(name, data)
