"""What must be there: the log's order and the sent rows in; each row's verdict, each key's winner and each floor out.

Written from the promises, not from the platform's code. A row is *certain* when its import completed: it must be there or be
beaten by a newer one. Rows of imports that were cancelled, failed or are still open *may* be there."""

import json
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import polars as pl

from checker import flavours, rows
from checker.dump import Dump
from checker.foreign.operations import DELETE, is_given
from checker.imported import Imported, parts_of
from checker.oplog import END, EVENTS, FULL_READS, TRUNCATE, LogOp, Revisions, read_ops, topic_of
from checker.shapes import FIRST_SHAPE

TABLE = ["tenant", "table"]


class Model:
    def __init__(self, dump: Dump) -> None:
        self.dump = dump
        self.ops = read_ops(dump)
        self.applied = {op["op"] for op in dump.ops if op["state"] == "applied"}
        self.revisions = Revisions(self.ops, self.applied)
        self.files = {file["file"]: file for file in dump.files}
        self.imports = self._imports()
        self.by_file = {part.file["file"]: each for each in self.imports.values() for part in each.parts}

    def _imports(self) -> dict[str, Imported]:
        """Of several requests with one key the first in the log began the import."""
        by_key = {file["key"]: file for file in self.dump.files}
        documents = {document["id"]: document for document in self.dump.imports if not document.get("missing")}
        found: dict[str, Imported] = {}
        for op in sorted(self.ops, key=lambda op: op.seq):
            parts = parts_of(op, by_key) if op.id in documents else ()
            if parts:
                shape = self.revisions.at(op.tenant, op.subject, op.seq) or FIRST_SHAPE
                found[op.id] = Imported(op.id, op, parts, shape, documents[op.id])
        return found

    @cached_property
    def told(self) -> list[dict[str, Any]]:
        """The events as they stand on their topic."""
        return [json.loads(text) for text in topic_of(self.dump.records, FULL_READS[0], EVENTS)["text"]]

    @cached_property
    def chunks(self) -> dict[str, int]:
        """How many chunks each import has that was received whole."""
        told = {op.subject: int(op.body["chunks"]) for op in self.ops if op.kind == END}
        return told | {each.id: 1 for each in self.imports.values() if each.is_append}

    @cached_property
    def ends(self) -> dict[str, LogOp]:
        """The op that said the import was received whole."""
        return {op.subject: op for op in self.ops if op.kind == END}

    @cached_property
    def truncates(self) -> dict[str, LogOp]:
        """The truncations that were applied, by the import that carries each to the sinks."""
        results = {op["op"]: op.get("result") or {} for op in self.dump.ops}
        done = [op for op in self.ops if op.kind == TRUNCATE and op.id in self.applied]
        return {str(results[op.id].get("import", op.id)): op for op in done}

    @cached_property
    def floors(self) -> pl.DataFrame:
        """Per table the place of its last truncate that is done: what lies before it must be gone."""
        frame = pl.DataFrame(
            [(op.tenant, op.subject, op.seq) for op in self.truncates.values()],
            schema={"tenant": pl.String, "table": pl.String, "floor": pl.Int64},
            orient="row",
        )
        return frame.group_by(TABLE).agg(pl.col("floor").max())

    @cached_property
    def _part_frame(self) -> pl.DataFrame:
        schema = pl.Schema({
            "file": pl.Int64, "offset": pl.Int64, "import": pl.String, "tenant": pl.String, "table": pl.String,
            "seq": pl.Int64, "certain": pl.Boolean, "withheld": pl.Boolean, "keyed": pl.Boolean,
        })  # fmt: skip
        keyless, atomic = (_places(self.dump.run.get(name, [])) for name in ("keyless", "atomic"))
        found = [
            (part.file["file"], part.offset, i.id, i.tenant, i.table, i.seq, i.is_certain,
             (i.tenant, i.table) in atomic and i.is_over and i.state != "completed", (i.tenant, i.table) not in keyless)
            for i in self.imports.values()
            for part in i.parts
        ]  # fmt: skip
        return pl.DataFrame(found, schema=schema, orient="row")

    @cached_property
    def _passing(self) -> pl.DataFrame:
        """Which flavours of which file pass, under the shape in force at its import's place."""
        found = [
            (part.file["file"], flavour, True)
            for imported in self.imports.values()
            for part in imported.parts
            for flavour in flavours.accepted(imported.shape, part.file.get("early"))
        ]
        return pl.DataFrame(found, schema={"file": pl.Int64, "flavour": pl.String, "passes": pl.Boolean}, orient="row")

    @cached_property
    def rows(self) -> pl.DataFrame:
        """Every row of every import, with the verdict on it. `place` is its number in the import, `row` that in its file.

        Of an atomic import that did not complete nothing may be shown, so none of its rows counts as accepted."""
        sent = self.dump.rows.join(self._part_frame, on="file")
        judged = sent.join(self._passing, on=["file", "flavour"], how="left")
        passes = pl.col("passes").fill_null(False)
        return judged.select(
            "file", "row", (pl.col("row") + pl.col("offset")).alias("place"), "k", "nonce", "flavour", "import", *TABLE,
            "seq", "certain", "keyed", passes, (passes & ~pl.col("withheld")).alias("accepted"),
            (pl.col("flavour") == flavours.DELETE).alias("deletes"),
        )  # fmt: skip

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
        """Per key of the keyed tables the newest certain row."""
        certain = self.above_floor.filter(pl.col("keyed") & pl.col("certain"))
        return newest(certain).select(*TABLE, "k", "seq", "place", "deletes")

    @cached_property
    def given(self) -> pl.DataFrame:
        """Keys whose rows another engine has deleted. They may be gone, or be back with an older row."""
        deleted = {tuple(said["target"].split("/")) for said in self.dump.foreign if said["operation"] == DELETE}
        tables = pl.DataFrame(sorted(deleted), schema={"tenant": pl.String, "table": pl.String}, orient="row")
        return self.rows.filter(is_given()).join(tables, on=TABLE).select(*TABLE, "k").unique()

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
        places = self._part_frame.select(pl.col("import").alias("_import"), "seq", "certain").unique("_import")
        return whole.join(places, on="_import", how="left")

    @property
    def main_reader(self) -> str:
        return self.dump.readers[0] if self.dump.readers else ""

    @cached_property
    def table_rows(self) -> pl.DataFrame:
        return self.stored(self.main_reader)


def newest(rows: pl.DataFrame) -> pl.DataFrame:
    """Of each key the last row in the log's order."""
    return rows.sort("seq", "place").group_by([*TABLE, "k"], maintain_order=True).last()


def _places(listed: Iterable[Iterable[str]]) -> set[tuple[str, ...]]:
    return {tuple(place) for place in listed}


_STORED = pl.Schema({
    "k": pl.Int64, "w": pl.String, "_version": pl.Int64, "_import": pl.String, "_row": pl.Int64, "canary": pl.String,
    "file": pl.Int64, "row": pl.Int64, "nonce": pl.Int64, "tenant": pl.String, "table": pl.String, "seq": pl.Int64,
    "certain": pl.Boolean,
})  # fmt: skip
