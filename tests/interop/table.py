"""One table of the matrix: a home with its sink, a model, and what each version of the table must show."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millrace.exchange.home import Home
from millrace.exchange.mailboxes import open_exchange
from millrace.lake.schema import spec_of
from millrace.lake.store import Store
from millrace.model.table import Definition
from millrace.settings import KEYS_HERE
from millrace.sink.context import SinkContext
from millrace.sink.contract import StagedGroup
from millrace.sink.delta.sink import DeltaSink
from millrace.sink.delta.upkeep import Due, Upkeep, settled_version, tidy
from tests.interop.model import Model
from tests.interop.shapes import Row, Shape
from tests.support.revisions import Revisions, stage_under

EARLY_IMPORTS = 20


class MatrixTable:
    """`seen` has, by version, the columns and the rows that a reader must find."""

    def __init__(self, home: Path, shape: Shape, mode: str) -> None:
        self.home, self.shape, self.mode = home, shape, mode
        self.revisions = Revisions(key=(shape.key,) if shape.key else (), deletion_vectors=mode)
        self.model = Model(shape.key, tuple(str(field["name"]) for field in shape.wide))
        self.seen: dict[int, tuple[tuple[str, ...], list[str]]] = {}
        self._definition: Definition | None = None
        home.mkdir(parents=True, exist_ok=True)
        (home / "definitions").mkdir(exist_ok=True)
        self._exchange = open_exchange(home)
        exchange = self._exchange
        self._sink = DeltaSink(exchange.places, exchange.definitions, Upkeep(), exchange.keyring(KEYS_HERE))

    def copy(self, home: Path) -> "MatrixTable":
        shutil.copytree(self.home, home)
        copied = MatrixTable(home, self.shape, self.mode)
        copied.revisions = Revisions(self.revisions.key, self.mode, dict(self.revisions.known), self.revisions.newest)
        copied.model, copied._definition, copied.seen = self.model.copy(), self._definition, dict(self.seen)
        return copied

    @property
    def root(self) -> Path:
        return Home(self.home).table("acme", "t")

    @property
    def version(self) -> int:
        return max((int(path.stem) for path in (self.root / "_delta_log").glob("*.json")), default=-1)

    def define(self, fields: Sequence[Mapping[str, Any]]) -> None:
        self._definition = self.revisions.add(*fields)
        Home(self.home).definition(self._definition.fingerprint).write_bytes(self._definition.to_json())

    def imports(self, version: int, rows: Sequence[Row], deletes: Sequence[object] = ()) -> StagedGroup:
        """As an import that continues: the platform's own sink takes the staged rows."""
        group = self._group(version, rows, deletes)
        self._sink.write([group])
        self.model.imported(version, rows, deletes)
        self.note()
        return group

    def repeat(self, group: StagedGroup) -> None:
        """The same rows again, as after a crash."""
        self._sink.write([group])
        self.note()

    def tidy(self) -> None:
        assert self._definition is not None
        due = Due(self.root, spec_of(self._definition))
        exchange = self._exchange
        settled = settled_version(exchange.safe_version)
        tidy(due, SinkContext(exchange.places), exchange.keyring(KEYS_HERE), settled)
        self.note()

    def note(self) -> None:
        """Every version since the last note must show what the model has now."""
        shown = self.model.columns, self.model.texts()
        for version in range(max(self.seen, default=-1) + 1, self.version + 1):
            self.seen[version] = shown

    def _group(self, version: int, rows: Sequence[Row], deletes: Sequence[object]) -> StagedGroup:
        assert self._definition is not None
        gone = [{str(self.shape.key): key, "_deleted": True} for key in deletes]
        filled = [{**rows[0], **row} for row in gone]
        staged = stage_under(Store(self.root), self._definition, version, [*rows, *filled])
        chunks = ((f"imp{version}", 0),)
        return StagedGroup("acme", "t", self._definition.fingerprint, staged, chunks, version=version)


def base_table(home: Path, shape: Shape, mode: str) -> MatrixTable:
    """Enough small imports for a checkpoint, then larger ones, a wider revision, deletes."""
    table = MatrixTable(home, shape, mode)
    table.define(shape.narrow)
    for number in range(EARLY_IMPORTS):
        at = 10 * (number + 1)
        table.imports(at, [shape.row(key, at, wide=False) for key in range(number, number + 4)])
    table.imports(300, [shape.row(key, 300, wide=False) for key in range(20, 60)])
    table.define(shape.wide)
    deletes = [shape.row(key, 0, wide=False)[shape.key] for key in (1, 2, 40)] if shape.key else []
    table.imports(310, [shape.row(key, 310, wide=True) for key in range(50, 70)], deletes)
    return table
