"""The change feed of a table as Delta's protocol defines it, read from the log with nothing of ours: entries in, changes out,
and the rows that follow from them."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ARRIVING, LEAVING = ("insert", "update_postimage"), ("delete", "update_preimage")
TYPE = "_change_type"

Row = tuple[tuple[str, Any], ...]
Columns = Mapping[str, Any]


def entry(root: Path, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "_delta_log" / f"{version:020}.json").read_text().splitlines()]


def newest_version(root: Path) -> int:
    return max(int(path.stem) for path in (root / "_delta_log").glob("*.json"))


def changes_of(root: Path, version: int) -> list[dict[str, Any]]:
    """A version with files of changes has these changes. Else the rows of its files are inserted or deleted. Some readers do
    not look at the deletion vectors of such files, so there must be none."""
    actions = entry(root, version)
    named = [action["cdc"] for action in actions if "cdc" in action]
    if named:
        for action in named:
            assert (root / action["path"]).stat().st_size == action["size"]
        return [row for action in named for row in _rows(root / action["path"])]
    found = []
    for kind, change in (("remove", "delete"), ("add", "insert")):
        for action in (action[kind] for action in actions if kind in action):
            if action["dataChange"]:
                assert "deletionVector" not in action, f"version {version} has a vector and no file of changes"
                found += [{**row, TYPE: change} for row in _rows(root / action["path"])]
    return found


def columns_of(root: Path, version: int, before: Columns) -> Columns:
    """The table's columns after this version, with their types."""
    for action in entry(root, version):
        if "metaData" in action:
            fields = json.loads(action["metaData"]["schemaString"])["fields"]
            return {field["name"]: field["type"] for field in fields}
    return before


def shown(row: Mapping[str, Any], columns: Columns) -> Row:
    """The row as a reader sees it who knows these columns."""
    cells = {name: row.get(name) for name in columns}
    return tuple(
        (name, str(cell) if columns[name] == "string" and cell is not None else cell) for name, cell in cells.items()
    )


def replayed(root: Path) -> list[Counter[Row]]:
    """The table's rows at each version, from the feed alone. A row that leaves must have been there."""
    columns: Columns = {}
    rows: Counter[Row] = Counter()
    at = []
    for version in range(newest_version(root) + 1):
        columns = columns_of(root, version, columns)
        rows = _in_columns(rows, columns)
        changes = changes_of(root, version)
        for change in changes:
            if change[TYPE] in LEAVING:
                row = shown(change, columns)
                assert rows[row] > 0, f"version {version}: {change} was not there"
                rows[row] -= 1
        rows += Counter(shown(change, columns) for change in changes if change[TYPE] in ARRIVING)
        at.append(Counter(rows))
    return at


def _in_columns(rows: Counter[Row], columns: Columns) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for row, count in rows.items():
        found[shown(dict(row), columns)] += count
    return found


def _rows(path: Path) -> list[dict[str, Any]]:
    rows: pa.Table = pq.read_table(path)
    return rows.to_pylist()
