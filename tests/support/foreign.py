"""Other engines in tests: Parquet files and log entries as they write them, without any code of ours."""

import json
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

Action = dict[str, Any]


def newest_version(root: Path) -> int:
    return max(int(path.stem) for path in (root / "_delta_log").glob("*.json"))


def commit(root: Path, *actions: Action) -> None:
    """The next version, as another engine commits it."""
    entry = root / "_delta_log" / f"{newest_version(root) + 1:020}.json"
    lines = [{"commitInfo": {"timestamp": 1, "operation": "FOREIGN", "engineInfo": "another engine"}}, *actions]
    entry.write_text("".join(json.dumps(line) + "\n" for line in lines))


def file_of(root: Path, rows: pa.Table, *, told: bool = True, name: str | None = None, **options: Any) -> Action:
    """The add of a new file with these rows, written with options of pyarrow. `told`: its writer gives its number of rows."""
    path = root / (name or f"part-{uuid.uuid4()}.c000.snappy.parquet")
    path.parent.mkdir(exist_ok=True)
    pq.write_table(rows, path, **options)
    stats = {"stats": json.dumps({"numRecords": rows.num_rows})} if told else {}
    described = {"path": quote(str(path.relative_to(root))), "partitionValues": {}, "size": path.stat().st_size}
    return {"add": {**described, "modificationTime": 1, "dataChange": True, **stats}}


def removals(root: Path) -> list[Action]:
    """Removes of all files that the log's entries name as live."""
    live: dict[str, Action] = {}
    for entry in sorted((root / "_delta_log").glob("*.json")):
        for action in map(json.loads, entry.read_text().splitlines()):
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
        for action in map(json.loads, entry.read_text().splitlines()):
            if "add" in action:
                live[action["add"]["path"]] = action["add"]
    kept = ("path", "size", "partitionValues", "deletionVector")
    return [
        {"remove": {**{key: add[key] for key in kept if key in add}, "deletionTimestamp": 1, "dataChange": False}}
        for add in live.values()
    ]


def last_action(root: Path, kind: str) -> Action:
    """The newest `metaData` or `protocol` of the log."""
    found: Action = {}
    for entry in sorted((root / "_delta_log").glob("*.json")):
        for action in map(json.loads, entry.read_text().splitlines()):
            found = action.get(kind, found)
    return found


def change_metadata(root: Path, **changes: Any) -> None:
    """Properties by `configuration`, columns by `schema`, and the other fields of the metadata by their names."""
    metadata = last_action(root, "metaData")
    configuration = {**metadata["configuration"], **changes.pop("configuration", {})}
    if "schema" in changes:
        changes["schemaString"] = json.dumps({"type": "struct", "fields": changes.pop("schema")})
    commit(root, {"metaData": {**metadata, "configuration": configuration, **changes}})


def fields_of(root: Path) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(last_action(root, "metaData")["schemaString"])["fields"]
    return fields


def give_features(root: Path, *features: str, readers: tuple[str, ...] = ()) -> None:
    listed = {"readerFeatures": list(readers), "writerFeatures": [*features, *readers, "appendOnly", "invariants"]}
    commit(root, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **listed}})
