"""An import on its way through the perfect platform: begun, sent, applied when the story says so."""

import json
from typing import Any

import numpy as np
import polars as pl

from checker import flavours, rows
from checker.selftest.perfect import Perfect

CHUNK_ROWS = 20
COUNTS = ("read", "accepted", "rejected", "ignored")
Counts = tuple[int, int, int, int]


class Upload:
    """One file; or, with several `counts`, the rows of as many streamed requests gathered into one append."""

    def __init__(
        self,
        world: Perfect,
        tenant: str,
        table: str,
        *counts: int,
        bad: float = 0.1,
        span: str | None = None,
        **file: Any,
    ) -> None:
        self.world, self.tenant, self.table_name, self.span = world, tenant, table, span
        self.shape = world.shapes[tenant, table]
        self.is_append = len(counts) > 1
        first = len(world.dump.files) + 1
        shared = {
            "tenant": tenant,
            "table": table,
            "early": None,
            "format": "jsonl",
            "added": list(self.shape.added),
            **file,
        }
        numbered = enumerate(counts or (50,), first)
        self.files = [{"file": n, "key": f"key-{n}", "rows": count, **shared} for n, count in numbered]
        self.rows = pl.concat([self._rows(each, bad) for each in self.files]).with_row_index("place", offset=1)
        self.id = f"imp_{first:03d}"
        world.dump.files += self.files
        self.asked = world.tick()
        world.op(self.id, "append" if self.is_append else "begin_import", tenant, table, self._body())
        world.tell(self.id, "import.admitted", tenant, self.id, {})
        self.first_version = int(world.now * 1_000_000)

    def _body(self) -> dict[str, Any]:
        if self.is_append:
            return {"streams": {file["key"]: [1, file["rows"]] for file in self.files}}
        return {"idempotency_key": self.files[0]["key"]}

    def _rows(self, file: dict[str, Any], bad: float) -> pl.DataFrame:
        rng, count = self.world.rng, file["rows"]
        flavour = flavours.choose(rng, count, file["format"], bad)
        if file.get("kind") == "delete":
            flavour = np.full(count, flavours.DELETE)
        if file["early"] is None:
            flavour = np.where(flavour == flavours.EARLY, flavours.GOOD, flavour)
        number, keys, nonce = np.full(count, file["file"]), rng.integers(0, 40, count), rng.integers(0, 1 << 31, count)
        columns = {"file": number, "row": np.arange(1, count + 1), "k": keys, "nonce": nonce, "flavour": flavour}
        return pl.DataFrame(columns, schema=rows.SCHEMA)

    @property
    def _early(self) -> str | None:
        early: str | None = self.files[0]["early"]
        return early

    @property
    def _chunks(self) -> list[pl.DataFrame]:
        return [self.rows] if self.is_append else list(self.rows.iter_slices(CHUNK_ROWS))

    def send(self) -> "Upload":
        """All bytes are in the log; whoever sent them has the answer."""
        for number, chunk in enumerate(self._chunks):
            stamp = {"import_id": self.id, "number": number, "first_row": int(chunk["place"][0]), "rows": chunk.height}
            stamp |= {"version": self.first_version + number, "checksum": number}
            self.world.append("raw-input", self.tenant, json.dumps(stamp), [self.tenant])
        if not self.is_append:
            announced = {"chunks": len(self._chunks), "rows": self.rows.height, "bytes": 1}
            self.world.op(f"end_{self.id}", "end_import", self.tenant, self.id, announced)
            self.world.tell(f"end_{self.id}", "import.received", self.tenant, self.id, announced)
        for file in self.files:
            self._status("stream" if self.is_append else "import", (0, 0, 0, 0), self.asked, file["key"])
        return self

    def _status(self, f: str, counts: Counts, begun: float | None = None, key: str | None = None) -> None:
        named = dict(zip(COUNTS, counts, strict=True))
        self.world.call(f, self.tenant, self.table_name, {"import": self.id, "counts": named}, key, begun)

    def apply(self, only_chunks: int | None = None) -> None:
        """Judged, stored, counted, announced; with `only_chunks` it was cancelled after so many."""
        total: Counts = (0, 0, 0, 0)
        passing = list(flavours.accepted(self.shape, self._early))
        judged = [self.rows.clear()]
        shown = only_chunks is None or [self.tenant, self.table_name] not in self.world.dump.run["atomic"]
        for number, chunk in enumerate(self._chunks):
            good = chunk.filter(pl.col("flavour").is_in(passing))
            counts: Counts = (chunk.height, good.height, chunk.height - good.height, 0)
            if only_chunks is not None and number >= only_chunks:
                counts = (chunk.height, 0, 0, chunk.height)
            else:
                judged.append(chunk)
                self._keep(number, good if shown else good.clear())
            total = (total[0] + counts[0], total[1] + counts[1], total[2] + counts[2], total[3] + counts[3])
            self._facts(number, counts)
        bad = pl.concat(judged).filter(~pl.col("flavour").is_in(passing))
        self.world.remember(self.rows.drop("place"), self._rejects(bad))
        self._end(total, "completed" if only_chunks is None else "cancelled")

    def _facts(self, number: int, counts: Counts) -> None:
        verdict = dict(zip(("rows", *COUNTS[1:]), counts, strict=True))
        told = {"fact": "Judged", "verdicts": [{"import_id": self.id, "number": number, **verdict}]}
        self.world.append("progress", self.tenant, json.dumps(told))
        durable = {"fact": "Durable", "sink": "delta", "chunks": [[self.id, number]]}
        self.world.append("progress", self.tenant, json.dumps(durable))

    def _keep(self, number: int, good: pl.DataFrame) -> None:
        cells = rows.cells(good, f"canary-{self.tenant}", self.files[0]["added"])
        if self._early in self.shape.names:
            value = pl.Series(rows.added_value(rows.base_of(good), str(self._early)))
            is_early = good["flavour"] == flavours.EARLY
            cells = cells.with_columns(pl.when(is_early).then(value).otherwise(None).alias(str(self._early)))
        marks = {
            "_version": pl.repeat(self.first_version + number, good.height, dtype=pl.Int64, eager=True),
            "_import": pl.repeat(self.id, good.height, eager=True),
            "_row": good["place"].cast(pl.Int64),
            "gone": good["flavour"] == flavours.DELETE,
        }
        self.world.store(self.tenant, self.table_name, cells.with_columns(**marks))

    def _rejects(self, bad: pl.DataFrame) -> pl.DataFrame:
        keyed = [self.tenant, self.table_name] not in self.world.dump.run["keyless"]
        file_format = self.files[0]["format"]
        reasons = [[flavours.reason(flavour, file_format, self._early, keyed=keyed)] for flavour in bad["flavour"]]
        raw = [f"canary-{self.tenant}|{row}".encode() for row in bad["row"]]
        place = {"tenant": self.tenant, "table": self.table_name, "import": self.id}
        marks = [pl.lit(value).alias(name) for name, value in place.items()]
        row, chunk = pl.col("place").cast(pl.Int64), (pl.col("place").cast(pl.Int64) - 1) // CHUNK_ROWS
        texts, lists = pl.Series(raw, dtype=pl.Binary), pl.Series(reasons, dtype=pl.List(pl.String))
        return bad.select(*marks, row=row, chunk=chunk, raw=texts, reasons=lists)

    def _end(self, counts: Counts, state: str) -> None:
        named = dict(zip(COUNTS, counts, strict=True))
        world = self.world
        world.op(f"settle_{self.id}", "settle_import", self.tenant, self.id, {"counts": named})
        world.tell(f"settle_{self.id}", f"import.{state}", self.tenant, self.id, {"rows": named})
        world.read(self.tenant, self.table_name, [self.id])
        document = {"id": self.id, "tenant": self.tenant, "table": self.table_name, "state": state, "rows": named}
        error = None if state == "completed" else {"code": state}
        told = {"sinks": {"delta": {}}, "first_version": self.first_version, "error": error, "span": self.span}
        world.dump.imports.append({**document, **told})
        self._status("status", counts)
