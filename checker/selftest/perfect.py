"""A platform that makes no mistakes, in memory: requests in, the dump of a flawless run out."""

import base64
import hashlib
import hmac
import json
from collections import defaultdict
from typing import Any

import numpy as np
import polars as pl

from checker.dump import RECORDS, REJECTED, SEEN_ROWS, Document, Dump
from checker.foreign.operations import Operation, Rows
from checker.shapes import Shape

PARTITIONS = {"left": 0, "right": 1}
SECRET = b"not a secret"
OTHERS = {"k": pl.Int64, "w": pl.String}


class Perfect:
    """Each step takes some time, so that order in time and order in the log can be compared."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        canaries = {tenant: f"canary-{tenant}" for tenant in PARTITIONS}
        said = {"seed": seed, "canaries": canaries, "keyless": [], "atomic": [], "lags": {"lag": 0}}
        self.dump = Dump(run={**said, "capabilities": ["webhooks"]})
        self.shapes: dict[tuple[str, str], Shape] = {}
        self._revisions: dict[tuple[str, str], int] = defaultdict(int)
        self._offsets: dict[tuple[str, int], int] = defaultdict(int)
        self._records: list[tuple[Any, ...]] = []
        self._tables: dict[tuple[str, str], list[pl.DataFrame]] = defaultdict(list)
        self._rejected: list[pl.DataFrame] = []
        self._seen: list[pl.DataFrame] = []
        self._sent: list[pl.DataFrame] = []
        self._others: dict[tuple[str, str], Rows] = defaultdict(dict)
        self._calls = 0
        self.now = 1_000_000.0

    def tick(self, seconds: float = 0.01) -> float:
        self.now = round(self.now + seconds, 3)
        return self.now

    def append(self, topic: str, tenant: str, text: str, seen: list[str] | None = None) -> int:
        partition = PARTITIONS[tenant] if topic in ("table-ops", "events") else 0
        offset = self._offsets[topic, partition]
        self._offsets[topic, partition] += 1
        key = tenant if topic in ("table-ops", "events") else f"{tenant}/t"
        digest = hashlib.sha256(text.encode()).hexdigest()
        self._records.append(
            (f"millrace.{topic}", partition, offset, int(self.tick() * 1000), key, digest, text, seen or [])
        )
        return offset

    def op(self, op_id: str, kind: str, tenant: str, subject: str, body: Document) -> int:
        said = {"id": op_id, "kind": kind, "tenant": tenant, "subject": subject, "body": body}
        return self.append("table-ops", tenant, json.dumps(said))

    def call(
        self, f: str, tenant: str, table: str, result: Document, key: str | None = None, begun: float | None = None
    ) -> None:
        """One request that was answered; `begun` is when it was asked."""
        self._calls += 1
        about = {"f": f, "tenant": tenant, "table": table, "idem_key": key}
        line = {"proc": 0, "idx": self._calls, **about, "result": None}
        asked = begun if begun is not None else self.tick()
        self.dump.history.append({**line, "type": "invoke", "t_mono": asked, "t_wall": asked})
        done = self.tick()
        self.dump.history.append(
            {**line, "type": "ok", "t_mono": done, "t_wall": done, "result": result, "seen": [tenant]}
        )

    def cancel(self, tenant: str, import_id: str) -> None:
        self.call("cancel", tenant, "", {"import": import_id, "counts": None})
        self.dump.history[-1]["path"] = self.dump.history[-2]["path"] = f"/v1/imports/{import_id}/cancel"

    def tell(self, op_id: str, word: str, tenant: str, subject: str, data: Document) -> None:
        event = {"id": f"{op_id}.{word}", "type": f"millrace.{word}", "subject": subject, "data": data}
        event["source"] = f"/millrace/tenants/{tenant}"
        self.append("events", tenant, json.dumps(event))
        self.dump.events.append(event)
        self.dump.heard.append({"event": event, "t_wall": self.tick()})
        self._deliver(tenant, event)

    def _deliver(self, tenant: str, event: Document) -> None:
        body, at = json.dumps(event), str(int(self.now))
        signed = hmac.new(SECRET, f"{event['id']}.{at}.{body}".encode(), hashlib.sha256).digest()
        signature = f"v1,{base64.b64encode(signed).decode()}"
        headers = {"webhook-id": event["id"], "webhook-timestamp": at, "webhook-signature": signature}
        secret = f"whsec_{base64.b64encode(SECRET).decode()}"
        self.dump.webhooks.append(
            {"tenant": tenant, "event": event, "headers": headers, "body": body, "secret": secret}
        )

    def define(self, tenant: str, table: str, shape: Shape, *, key: bool = True, atomic: bool = False) -> None:
        begun = self.tick()
        self._revisions[tenant, table] += 1
        revision = self._revisions[tenant, table]
        op_id = f"op_{tenant}_{table}_{revision}"
        self.op(op_id, "define_table", tenant, table, {"declaration": {"schema": shape.to_avro(table)}})
        result = {"revision": revision, "changed": True}
        self.dump.ops.append({"op": op_id, "kind": "define_table", "state": "applied", "result": result})
        self.shapes[tenant, table] = shape
        if revision == 1:
            self.dump.run["keyless"] += [] if key else [[tenant, table]]
            self.dump.run["atomic"] += [[tenant, table]] if atomic else []
        self.call("define", tenant, table, result, begun=begun)

    def truncate(self, tenant: str, table: str) -> None:
        op_id = f"op_truncate_{self.tick()}"
        self.op(op_id, "truncate_table", tenant, table, {})
        self.dump.ops.append({"op": op_id, "kind": "truncate_table", "state": "applied", "result": {}})
        self._tables[tenant, table].clear()
        self.read(tenant, table, [op_id])

    def begin_span(self, tenant: str, name: str) -> None:
        self.tell(f"op_begin_{name}", "span.begun", tenant, name, {})

    def end_span(self, tenant: str, name: str) -> None:
        """Everything in it has ended."""
        members = [
            document for document in self.dump.imports if document["span"] == name and document["tenant"] == tenant
        ]
        rows = {word: sum(document["rows"][word] for document in members) for word in members[0]["rows"]}
        self.tell(f"op_end_{name}", "span.ended", tenant, name, {"rows": rows, "imports": len(members)})
        self.dump.spans.append({"tenant": tenant, "name": name, "state": "ended"})

    def kill(self, what: str) -> None:
        self.dump.nemesis.append(
            {"fault": f"kill {what}", "target": what, "signal": "KILL", "open": [1], "t_wall": self.tick()}
        )

    def damage(self, tenant: str, table: str) -> None:
        said = {
            "fault": "F60",
            "target": f"{tenant}/{table}",
            "signal": "DAMAGE",
            "way": "garbage entry",
            "noticed": True,
        }
        self.dump.nemesis.append({**said, "t_wall": self.tick(), "t_mono": self.now})

    def calm(self) -> None:
        self.dump.nemesis[-1]["calm_wall"] = self.tick()

    def mend(self) -> None:
        self.dump.nemesis[-1] |= {"mended_wall": self.tick(), "healed": self.now}

    def attack(self) -> None:
        said = {
            "fault": "F61",
            "target": "hostile",
            "signal": "ATTACK",
            "t_wall": self.tick(),
            "attacks": 9,
            "is_whole": True,
        }
        self.dump.nemesis.append({**said, "reached": [], "changed": [], "leaked": []})

    def attacked(self) -> None:
        self.dump.nemesis[-1]["ended_wall"] = self.tick()

    def foreign(self, tenant: str, table: str, operation: Operation) -> None:
        """Another engine writes the table."""
        before = self._others[tenant, table]
        after = self._others[tenant, table] = operation.after(before)
        said: Document = {
            "target": f"{tenant}/{table}",
            "engine": "deltalake",
            "operation": operation.kind,
            "outcome": "done",
        }
        said |= {"before": before, "after": after, "found": after}
        self.dump.foreign.append({**said, "t_wall": self.tick()})

    def store(self, tenant: str, table: str, frame: pl.DataFrame) -> None:
        self._tables[tenant, table].append(frame)

    def remember(self, sent: pl.DataFrame, rejected: pl.DataFrame) -> None:
        self._sent.append(sent)
        self._rejected.append(rejected)

    def table(self, tenant: str, table: str) -> pl.DataFrame:
        """What a reader sees now: the newest row of each key, or every row."""
        frames = self._tables[tenant, table]
        if not frames:
            return pl.DataFrame(schema=SEEN_ROWS)
        whole = pl.concat(frames, how="diagonal_relaxed").sort("_version", "_row")
        if [tenant, table] not in self.dump.run["keyless"]:
            whole = whole.group_by("k", maintain_order=True).last()
        return whole.filter(~pl.col("gone")).drop("gone")

    def read(self, tenant: str, table: str, ended: list[str]) -> None:
        number = len(self.dump.snapshots)
        begun = self.tick()
        seen = self.table(tenant, table).select(
            pl.lit(number).cast(pl.Int64).alias("snapshot"), "k", "_version", "_import", "_row"
        )
        self._seen.append(seen)
        place = {"snapshot": number, "tenant": tenant, "table": table, "ended": ended}
        self.dump.snapshots.append({**place, "begun": begun, "done": self.tick()})

    def finish(self) -> Dump:
        """The run is over: everything is read once more."""
        dump = self.dump
        for tenant, table in self.shapes:
            for reader in ("delta-rs", "polars"):
                rows = self._others[tenant, table]
                others = pl.DataFrame({"k": list(rows), "w": list(rows.values())}, schema=OTHERS)
                whole = pl.concat([self.table(tenant, table), others], how="diagonal_relaxed")
                dump.stored[reader, tenant, table] = whole
        records = [(reader, *record) for reader in ("tail", "first", "second") for record in self._records]
        dump.records = pl.DataFrame(records, schema=RECORDS, orient="row")
        dump.rows = pl.concat([dump.rows, *self._sent])
        dump.seen_rows = pl.concat([pl.DataFrame(schema=SEEN_ROWS), *self._seen])
        dump.rejected = pl.concat([pl.DataFrame(schema=REJECTED), *self._rejected])
        for imported in [d for d in dump.imports if d["rows"]["rejected"]]:
            kept = dump.rejected.filter(pl.col("import") == imported["id"]).sort("row")["row"].to_list()
            dump.pages += [{"import": imported["id"], "reading": reading, "rows": kept} for reading in (1, 2)]
        return dump
