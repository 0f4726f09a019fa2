"""What must be there: the log's order and the sent rows in; each row's verdict, each key's winner and each floor out.

Written from the promises, not from the platform's code. A row is *certain* when its import completed: it must be there or be
beaten by a newer one. Rows of imports that were cancelled, failed or are still open *may* be there."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from checker import flavours, rows
from checker.dump import Dump
from checker.oplog import END, MAKING_IMPORTS, TRUNCATE, LogOp, Revisions, read_ops
from checker.shapes import FIRST_SHAPE, Shape

TERMINAL = ("completed", "failed", "cancelled")
ALL_REJECTED = "nothing_accepted"
TABLE = ["tenant", "table"]


@dataclass(frozen=True, slots=True)
class Imported:
    """An import: the file it holds, its place in the log, and the platform's last word about it."""

    id: str
    file: dict[str, Any]
    seq: int
    begun_ms: int
    shape: Shape
    document: dict[str, Any]

    @property
    def tenant(self) -> str:
        return str(self.file["tenant"])

    @property
    def table(self) -> str:
        return str(self.file["table"])

    @property
    def state(self) -> str:
        return str(self.document.get("state", "unknown"))

    @property
    def is_over(self) -> bool:
        return self.state in TERMINAL

    @property
    def is_certain(self) -> bool:
        """Whether every row of it was judged: what the file holds decides, nothing else."""
        return self.state == "completed" or (self.document.get("error") or {}).get("code") == ALL_REJECTED

    @property
    def counts(self) -> dict[str, int]:
        return dict(self.document.get("rows") or {})


class Model:
    def __init__(self, dump: Dump) -> None:
        self.dump = dump
        self.ops = read_ops(dump)
        self.applied = {op["op"] for op in dump.ops if op["state"] == "applied"}
        self.revisions = Revisions(self.ops, self.applied)
        self.files = {file["file"]: file for file in dump.files}
        self.imports = self._imports()
        self.by_file = {imported.file["file"]: imported for imported in self.imports.values()}

    def _imports(self) -> dict[str, Imported]:
        """Of several requests with one key the first in the log began the import."""
        by_key = {file["key"]: file for file in self.dump.files}
        documents = {document["id"]: document for document in self.dump.imports if not document.get("missing")}
        found: dict[str, Imported] = {}
        for op in sorted(self.ops, key=lambda op: op.seq):
            file = by_key.get(op.body.get("idempotency_key")) if op.kind in MAKING_IMPORTS else None
            if file is not None and op.id in documents:
                shape = self.revisions.at(op.tenant, op.subject, op.seq) or FIRST_SHAPE
                found[op.id] = Imported(op.id, file, op.seq, op.at_ms, shape, documents[op.id])
        return found

    @cached_property
    def ends(self) -> dict[str, LogOp]:
        """The op that said the import was received whole."""
        return {op.subject: op for op in self.ops if op.kind == END}

    @cached_property
    def floors(self) -> pl.DataFrame:
        """Per table the place of its last truncate that is done: what lies before it must be gone."""
        done = [op for op in self.ops if op.kind == TRUNCATE and op.id in self.applied]
        frame = pl.DataFrame(
            [(op.tenant, op.subject, op.seq) for op in done],
            schema={"tenant": pl.String, "table": pl.String, "floor": pl.Int64},
            orient="row",
        )
        return frame.group_by(TABLE).agg(pl.col("floor").max())

    @cached_property
    def _import_frame(self) -> pl.DataFrame:
        schema = {
            "file": pl.Int64, "import": pl.String, "tenant": pl.String, "table": pl.String, "seq": pl.Int64,
            "certain": pl.Boolean, "keyed": pl.Boolean,
        }  # fmt: skip
        keyless = {(tenant, table) for tenant, table in self.dump.run.get("keyless", [])}
        found = [
            (i.file["file"], i.id, i.tenant, i.table, i.seq, i.is_certain, (i.tenant, i.table) not in keyless)
            for i in self.imports.values()
        ]
        return pl.DataFrame(found, schema=schema, orient="row")

    @cached_property
    def _passing(self) -> pl.DataFrame:
        """Which flavours of which file pass, under the shape in force at its import's place."""
        found = [
            (i.file["file"], flavour)
            for i in self.imports.values()
            for flavour in flavours.accepted(i.shape, i.file.get("early"))
        ]
        return pl.DataFrame(found, schema={"file": pl.Int64, "flavour": pl.String}, orient="row")

    @cached_property
    def rows(self) -> pl.DataFrame:
        """Every row of every import: file, row, k, flavour, import, tenant, table, seq, certain, keyed, accepted, deletes."""
        sent = self.dump.rows.join(self._import_frame, on="file")
        passing = self._passing.with_columns(accepted=pl.lit(True))
        judged = sent.join(passing, on=["file", "flavour"], how="left")
        return judged.with_columns(
            pl.col("accepted").fill_null(False), deletes=pl.col("flavour") == flavours.DELETE
        ).select(
            "file", "row", "k", "nonce", "flavour", "import", *TABLE, "seq", "certain", "keyed", "accepted", "deletes"
        )

    @cached_property
    def _by_import(self) -> dict[tuple[object, ...], pl.DataFrame]:
        return self.rows.partition_by("import", as_dict=True)

    def rows_of(self, imports: Iterable[str]) -> pl.DataFrame:
        return pl.concat(
            [self.rows.clear(), *(self._by_import[(each,)] for each in imports if (each,) in self._by_import)]
        )

    @cached_property
    def above_floor(self) -> pl.DataFrame:
        """Accepted rows that no truncate has taken away."""
        floored = self.rows.filter("accepted").join(self.floors, on=TABLE, how="left")
        return floored.filter(pl.col("seq") > pl.col("floor").fill_null(-1)).drop("floor")

    @cached_property
    def winners(self) -> pl.DataFrame:
        """Per key of the keyed tables the newest certain row: tenant, table, k, seq, row, deletes."""
        certain = self.above_floor.filter(pl.col("keyed") & pl.col("certain"))
        return certain.sort("seq", "row").group_by([*TABLE, "k"], maintain_order=True).last().select(
            *TABLE, "k", "seq", "row", "deletes"
        )  # fmt: skip

    def stored(self, reader: str) -> pl.DataFrame:
        """A reader's tables as one frame: what each row says of itself, and the place of the import that it names."""
        frames = [
            rows.named(frame.select("k", "w", "_version", "_import", "_row"))
            .with_columns(tenant=pl.lit(tenant), table=pl.lit(table))
            for (tenant, table), frame in self.dump.of_reader(reader).items()
            if "w" in frame.columns
        ]  # fmt: skip
        if not frames:
            return pl.DataFrame(schema=_STORED)
        whole = pl.concat(frames, how="vertical_relaxed")
        places = self._import_frame.select(pl.col("import").alias("_import"), "seq", "certain")
        return whole.join(places, on="_import", how="left")

    @property
    def main_reader(self) -> str:
        return self.dump.readers[0] if self.dump.readers else ""

    @cached_property
    def table_rows(self) -> pl.DataFrame:
        return self.stored(self.main_reader)


_STORED = {
    "k": pl.Int64, "w": pl.String, "_version": pl.Int64, "_import": pl.String, "_row": pl.Int64, "canary": pl.String,
    "file": pl.Int64, "row": pl.Int64, "nonce": pl.Int64, "tenant": pl.String, "table": pl.String, "seq": pl.Int64,
    "certain": pl.Boolean,
}  # fmt: skip
