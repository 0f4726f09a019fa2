"""Ways in which a Delta table comes to be one that cannot be written, each with its repair."""

import shutil
from collections.abc import Callable
from pathlib import Path

import deltalake
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

Repair = Callable[[], object]


def _newest(root: Path) -> int:
    return max(int(path.stem) for path in (root / "_delta_log").glob("*.json") if path.stem.isdigit())


def _entry(root: Path, version: int) -> Path:
    return root / "_delta_log" / f"{version:020}.json"


def _next_entry(root: Path, content: bytes) -> Repair:
    path = _entry(root, _newest(root) + 1)
    path.write_bytes(content)
    return path.unlink


def empty_entry(root: Path) -> Repair:
    return _next_entry(root, b"")


def garbage_entry(root: Path) -> Repair:
    return _next_entry(root, b'{"add": {"path": \xff\n')


def replaced_entry(root: Path) -> Repair:
    """The newest entry, on which the next write builds, is another one than was written."""
    path = _entry(root, _newest(root))
    content = path.read_bytes()
    path.write_bytes(b"garbage")
    return lambda: path.write_bytes(content)


def entry_of_another_shape(root: Path) -> Repair:
    return _next_entry(root, b'{"add": {"path": "x.parquet"}}\n')


def unknown_feature(root: Path) -> Repair:
    features = ["appendOnly", "invariants", "timeMachine"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": features}
    return _next_entry(root, orjson.dumps({"protocol": protocol}) + b"\n")


def unknown_protocol(root: Path) -> Repair:
    return _next_entry(root, b'{"protocol": {"minReaderVersion": 9, "minWriterVersion": 19}}\n')


def _restoring(root: Path, change: Callable[[], object]) -> Repair:
    """A copy from before is put back."""
    kept = root.with_name(f"{root.name}.kept")
    shutil.copytree(root, kept)
    change()

    def repair() -> None:
        # Rows that were staged meanwhile stay.
        for path in (root / "_delta_log").iterdir():
            if not (kept / "_delta_log" / path.name).exists():
                path.unlink()
        shutil.copytree(kept, root, dirs_exist_ok=True)
        shutil.rmtree(kept)

    return repair


def constrained_by_another_engine(root: Path) -> Repair:
    return _restoring(root, lambda: deltalake.DeltaTable(str(root)).alter.add_constraint({"some": "text <> 'never'"}))


def keys_of_another_type(root: Path) -> Repair:
    """The file of another engine has numbers where the table declares text."""
    path = root / "foreign.parquet"
    pq.write_table(pa.table({"id": pa.array([1]), "text": pa.array(["row"])}), path)
    size, stats = path.stat().st_size, orjson.dumps({"numRecords": 1}).decode()
    add = {"path": path.name, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    return _next_entry(root, orjson.dumps({"add": {**add, "stats": stats}}) + b"\n")


def no_access(root: Path) -> Repair:
    """Something else is where the log should be."""
    log, kept = root / "_delta_log", root.with_name(f"{root.name}.log")
    log.rename(kept)
    log.write_text("in the way")

    def repair() -> None:
        log.unlink()
        kept.rename(log)

    return repair


def no_folder(root: Path) -> Repair:
    """Something else is where the table should be: not even rows can be staged there."""
    kept = root.with_name(f"{root.name}.kept")
    root.rename(kept)
    root.write_text("in the way")

    def repair() -> None:
        root.unlink()
        kept.rename(root)

    return repair


def lost_files(root: Path) -> Repair:
    """A data file of the table, and what the key index knows of it."""
    lost = [*root.glob("*.parquet"), *(root / "_millrace").rglob("*.keys"), *(root / "_millrace").glob("runs/*")]
    kept = [(path, path.read_bytes()) for path in lost]
    for path in lost:
        path.unlink()

    def repair() -> None:
        for path, content in kept:
            path.write_bytes(content)

    return repair


WAYS: dict[str, Callable[[Path], Repair]] = {
    "empty_entry": empty_entry,
    "garbage_entry": garbage_entry,
    "replaced_entry": replaced_entry,
    "entry_of_another_shape": entry_of_another_shape,
    "unknown_feature": unknown_feature,
    "unknown_protocol": unknown_protocol,
    "constrained_by_another_engine": constrained_by_another_engine,
    "keys_of_another_type": keys_of_another_type,
    "no_access": no_access,
    "lost_files": lost_files,
}
