"""One file on its way through the perfect platform: begun, sent, applied when the story says so."""

import json
from typing import Any

import numpy as np
import polars as pl

from checker import flavours, rows
from checker.selftest.perfect import Perfect

CHUNK_ROWS = 20


class Upload:
    """One file on its way through: begun, sent, then applied when the test says so."""

    def __init__(self, world: Perfect, tenant: str, table: str, *, bad: float = 0.1, **file: Any) -> None:
        self.world, self.tenant, self.table_name = world, tenant, table
        number = len(world.dump.files) + 1
        count = file.pop("count", 50)
        known = {"file": number, "tenant": tenant, "table": table, "key": f"key-{number}", "rows": count, "early": None}
        self.file = {**known, "format": "jsonl", "added": list(world.shapes[tenant, table].added), **file}
        self.id = f"imp_{number:03d}"
        self.shape = world.shapes[tenant, table]
        self.rows = self._rows(count, bad)
        world.dump.files.append(self.file)
        self.asked = world.tick()
        self.seq = world.op(self.id, "begin_import", tenant, table, {"idempotency_key": self.file["key"]})
        world.tell(self.id, "admitted", tenant, self.id, {})
        self.first_version = int(world.now * 1_000_000)

    def _rows(self, count: int, bad: float) -> pl.DataFrame:
        rng = self.world.rng
        flavour = flavours.choose(rng, count, self.file["format"], bad)
        if self.file.get("deletes"):
            flavour = np.full(count, flavours.DELETE)
        if self.file["early"] is None:
            flavour = np.where(flavour == flavours.EARLY, flavours.GOOD, flavour)
        return pl.DataFrame(
            {
                "file": np.full(count, self.file["file"]), "row": np.arange(1, count + 1),
                "k": rng.integers(0, 40, count), "nonce": rng.integers(0, 1 << 31, count), "flavour": flavour,
            },
            schema=rows.SCHEMA,
        )  # fmt: skip

    @property
    def _chunks(self) -> list[pl.DataFrame]:
        return list(self.rows.iter_slices(CHUNK_ROWS))

    def send(self) -> "Upload":
        """All bytes are in the log; whoever sent them has the answer."""
        for number, chunk in enumerate(self._chunks):
            stamp = {"import_id": self.id, "number": number, "first_row": int(chunk["row"][0]), "rows": chunk.height}
            stamp |= {"version": self.first_version + number, "checksum": number}
            self.world.append("raw-input", self.tenant, json.dumps(stamp), [self.tenant])
        announced = {"chunks": len(self._chunks), "rows": self.rows.height, "bytes": 1}
        self.world.op(f"end_{self.id}", "end_import", self.tenant, self.id, announced)
        self.world.tell(f"end_{self.id}", "received", self.tenant, self.id, announced)
        self._status("import", (0, 0, 0, 0), self.asked, self.file["key"])
        return self

    def _status(
        self, f: str, counts: tuple[int, int, int, int], begun: float | None = None, key: str | None = None
    ) -> None:
        named = dict(zip(("read", "accepted", "rejected", "ignored"), counts, strict=True))
        self.world.call(f, self.tenant, self.table_name, {"import": self.id, "counts": named}, key, begun)

    def apply(self, only_chunks: int | None = None) -> None:
        """Judged, stored, counted, announced; with `only_chunks` it was cancelled after so many."""
        world = self.world
        total = [0, 0, 0, 0]
        passing = list(flavours.accepted(self.shape, self.file["early"]))
        for number, chunk in enumerate(self._chunks):
            good = chunk.filter(pl.col("flavour").is_in(passing))
            ignored = only_chunks is not None and number >= only_chunks
            counts = (
                (chunk.height, 0, 0, chunk.height)
                if ignored
                else (chunk.height, good.height, chunk.height - good.height, 0)
            )
            total = [a + b for a, b in zip(total, counts, strict=True)]
            self._facts(number, counts)
            if not ignored:
                self._keep(number, good)
        judged = self.rows if only_chunks is None else self.rows.head(only_chunks * CHUNK_ROWS)
        world.remember(self.rows, self._rejects(judged.filter(~pl.col("flavour").is_in(passing))))
        self._end(tuple(total), "completed" if only_chunks is None else "cancelled")

    def _facts(self, number: int, counts: tuple[int, int, int, int]) -> None:
        verdict = {
            "import_id": self.id,
            "number": number,
            "rows": counts[0],
            "accepted": counts[1],
            "rejected": counts[2],
        }
        told = {"fact": "Judged", "verdicts": [{**verdict, "ignored": counts[3]}]}
        self.world.append("progress", self.tenant, json.dumps(told))
        durable = {"fact": "Durable", "sink": "delta", "chunks": [[self.id, number]]}
        self.world.append("progress", self.tenant, json.dumps(durable))

    def _keep(self, number: int, good: pl.DataFrame) -> None:
        cells = rows.cells(good, f"canary-{self.tenant}", self.file["added"])
        early = self.file["early"]
        if early in self.shape.names:
            value = pl.Series(rows.added_value(rows.base_of(good), early))
            is_early = good["flavour"] == flavours.EARLY
            cells = cells.with_columns(pl.when(is_early).then(value).otherwise(None).alias(early))
        marks = {
            "_version": pl.repeat(self.first_version + number, good.height, dtype=pl.Int64, eager=True),
            "_import": pl.repeat(self.id, good.height, eager=True),
            "_row": good["row"],
            "gone": good["flavour"] == flavours.DELETE,
        }
        self.world.store(self.tenant, self.table_name, cells.with_columns(**marks))

    def _rejects(self, bad: pl.DataFrame) -> pl.DataFrame:
        reasons = [[flavours.reason(flavour, self.file["format"], self.file["early"])] for flavour in bad["flavour"]]
        raw = [f"canary-{self.tenant}|{self.file['file']}|{row}".encode() for row in bad["row"]]
        place = {"tenant": self.tenant, "table": self.table_name, "import": self.id}
        marks = [pl.lit(value).alias(name) for name, value in place.items()]
        return bad.select(
            *marks, "row", ((pl.col("row") - 1) // CHUNK_ROWS).alias("chunk"), pl.Series("raw", raw, pl.Binary),
            pl.Series("reasons", reasons, pl.List(pl.String)),
        )  # fmt: skip

    def _end(self, counts: tuple[int, ...], state: str) -> None:
        named = dict(zip(("read", "accepted", "rejected", "ignored"), counts, strict=True))
        world = self.world
        world.op(f"settle_{self.id}", "settle_import", self.tenant, self.id, {"counts": named})
        world.tell(f"settle_{self.id}", state, self.tenant, self.id, {"rows": named})
        world.read(self.tenant, self.table_name, [self.id])
        error = None if state == "completed" else {"code": state}
        document = {"id": self.id, "tenant": self.tenant, "table": self.table_name, "state": state, "rows": named}
        world.dump.imports.append(
            {**document, "sinks": {"delta": {}}, "first_version": self.first_version, "error": error}
        )
        self._status("status", (counts[0], counts[1], counts[2], counts[3]))
