"""A run as plain data: what was asked, what was done to the platform, what it answered, and what lay in its stores.

A dump is a folder of JSON Lines and Parquet files that anyone can check again: `python -m checker check FOLDER`."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from checker import rows
from checker.foreign.operations import is_ours

Document = dict[str, Any]

LISTS = (
    "history",
    "nemesis",
    "files",
    "snapshots",
    "imports",
    "ops",
    "events",
    "heard",
    "pages",
    "webhooks",
    "sightings",
    "spans",
    "foreign",
)
"""history: every request. nemesis: every fault. foreign: what other engines did to the tables. files: what each sent file is.
snapshots: reads of tables during the run. imports, ops, events: the API's last word. heard: events as they arrived.
pages: pages of rejected rows, read twice. webhooks: what the receiver got. sightings: canaries seen in logs. spans: what the
API says of them at the end."""

RECORDS = pl.Schema({
    "reader": pl.String(), "topic": pl.String(), "partition": pl.Int64(), "offset": pl.Int64(), "at_ms": pl.Int64(),
    "key": pl.String(), "digest": pl.String(), "text": pl.String(), "seen": pl.List(pl.String),
})  # fmt: skip
"""Records of topics; `text` is the value (of raw-input the stamp), `seen` the tenants whose canaries are in it."""
SEEN_ROWS = pl.Schema(
    {
        "snapshot": pl.Int64,
        "k": pl.Int64,
        "_version": pl.Int64,
        "_import": pl.String,
        "_row": pl.Int64,
    }
)
REJECTED = pl.Schema({
    "tenant": pl.String(), "table": pl.String(), "import": pl.String(), "row": pl.Int64(), "chunk": pl.Int64(),
    "raw": pl.Binary(), "reasons": pl.List(pl.String),
})  # fmt: skip
FRAMES: dict[str, pl.Schema] = {"rows": rows.SCHEMA, "records": RECORDS, "seen_rows": SEEN_ROWS, "rejected": REJECTED}


def _empty(name: str) -> pl.DataFrame:
    return pl.DataFrame(schema=FRAMES[name])


@dataclass
class Dump:
    """`run` says what was planned: seed, minutes, tenants with their canaries, tables. `stored` is keyed by reader, tenant
    and table: each table read whole at the end, by every reader there is."""

    run: Document = field(default_factory=dict)
    history: list[Document] = field(default_factory=list)
    nemesis: list[Document] = field(default_factory=list)
    files: list[Document] = field(default_factory=list)
    snapshots: list[Document] = field(default_factory=list)
    imports: list[Document] = field(default_factory=list)
    ops: list[Document] = field(default_factory=list)
    events: list[Document] = field(default_factory=list)
    heard: list[Document] = field(default_factory=list)
    pages: list[Document] = field(default_factory=list)
    webhooks: list[Document] = field(default_factory=list)
    sightings: list[Document] = field(default_factory=list)
    spans: list[Document] = field(default_factory=list)
    foreign: list[Document] = field(default_factory=list)
    rows: pl.DataFrame = field(default_factory=lambda: _empty("rows"))
    records: pl.DataFrame = field(default_factory=lambda: _empty("records"))
    seen_rows: pl.DataFrame = field(default_factory=lambda: _empty("seen_rows"))
    rejected: pl.DataFrame = field(default_factory=lambda: _empty("rejected"))
    stored: dict[tuple[str, str, str], pl.DataFrame] = field(default_factory=dict)

    def whole(self, reader: str) -> dict[tuple[str, str], pl.DataFrame]:
        """The tables, with the rows of other engines."""
        return {(tenant, table): frame for (who, tenant, table), frame in self.stored.items() if who == reader}

    def of_reader(self, reader: str) -> dict[tuple[str, str], pl.DataFrame]:
        """The tables with the rows that were imported."""
        return {place: frame.filter(~is_ours()) for place, frame in self.whole(reader).items()}

    @property
    def readers(self) -> list[str]:
        return sorted({reader for reader, _, _ in self.stored})

    @property
    def canaries(self) -> Mapping[str, str]:
        """Tenant by canary."""
        return {canary: tenant for tenant, canary in self.run.get("canaries", {}).items()}


def save(dump: Dump, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(dump.run, indent=1))
    for name in LISTS:
        write_lines(folder / f"{name}.jsonl", getattr(dump, name))
    for name in FRAMES:
        (folder / name).mkdir(exist_ok=True)
        getattr(dump, name).write_parquet(folder / name / "all.parquet")
    for (reader, tenant, table), frame in dump.stored.items():
        save_stored(folder, reader, tenant, table, frame)


def save_stored(folder: Path, reader: str, tenant: str, table: str, frame: pl.DataFrame) -> None:
    (folder / "stored").mkdir(parents=True, exist_ok=True)
    frame.write_parquet(folder / "stored" / f"{reader}.{tenant}.{table}.parquet")


def load(folder: Path) -> Dump:
    """A folder without a run is an empty dump: checking it must be red, not an error."""
    dump = Dump(run=json.loads((folder / "run.json").read_text()) if (folder / "run.json").exists() else {})
    for name in LISTS:
        setattr(dump, name, read_lines(folder / f"{name}.jsonl"))
    dump.history += [line for path in sorted((folder / "history").glob("*.jsonl")) for line in read_lines(path)]
    for name in FRAMES:
        parts = [pl.read_parquet(path) for path in sorted((folder / name).glob("*.parquet"))]
        setattr(dump, name, pl.concat([_empty(name), *parts], how="vertical_relaxed"))
    for path in sorted((folder / "stored").glob("*.parquet")):
        reader, tenant, table, _ = path.name.split(".")
        dump.stored[reader, tenant, table] = pl.read_parquet(path)
    return dump


def write_lines(path: Path, documents: Iterable[Document]) -> None:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))


def read_lines(path: Path) -> list[Document]:
    """A last line without its end was being written when its writer died."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")
    return [json.loads(line) for line in lines[:-1]]
