"""The end of a run: waits until everything has ended, then reads what there is: topics, tables, rejected rows, the API."""

import json
import re
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import polars as pl

from checker.capabilities import SPANS
from checker.dump import REJECTED, read_lines, save_stored, write_lines
from checker.imported import TERMINAL
from checker.oplog import BEGIN, DEFINE, FULL_READS, MAKING_IMPORTS, TABLE_OPS, TRUNCATE
from checker.platform import Platform
from checker.sinks import READERS, is_there, read_all, read_rejected, wear
from checker.tables import Table
from checker.terminal import is_terminal
from checker.topics import Reading

SETTLE_SECONDS = 240.0
OPEN_STATES = ("admitted", "receiving", "processing", "stalled", "publishing", "stopping")
REQUESTED = "requested"
OVER = ("ended", "aborted")
PAGE = 1000
LAG_SECONDS = 75.0
LAG = re.compile(r"^(millrace_(?:lag_records|open_imports|unsent_events)(?:\{[^}]*\})?) ([0-9.e+]+)$", re.MULTILINE)


class Collector:
    def __init__(
        self, platform: Platform, tables: list[Table], canaries: Mapping[str, str], folder: Path, capabilities: set[str]
    ) -> None:
        self._platform, self._tables, self._canaries, self._folder = platform, tables, canaries, folder
        self._capabilities = capabilities
        headers = {"Authorization": f"Bearer {platform.token}"}
        self._http = httpx2.Client(base_url=platform.url, headers=headers, timeout=60)

    def wait_settled(self) -> float:
        """Seconds until nothing was under way any more; gives up after a while, which the checks will see."""
        begun = time.monotonic()
        while time.monotonic() - begun < SETTLE_SECONDS:
            if not self._is_busy():
                return time.monotonic() - begun
            time.sleep(1.0)
        return time.monotonic() - begun

    def _is_busy(self) -> bool:
        try:
            open_imports = any(self._get("/v1/imports", state=state, limit=1)["items"] for state in OPEN_STATES)
            return open_imports or any(span["state"] not in OVER for span in self._spans())
        except httpx2.HTTPError:
            return True

    def _get(self, path: str, **params: Any) -> dict[str, Any]:
        response = self._http.get(path, params=params)
        response.raise_for_status()
        return dict(response.json())

    def collect(self) -> None:
        for reader in FULL_READS:
            reading = Reading(self._platform.kafka_login, self._canaries, self._folder / "records", reader)
            reading.read_to_end()
            reading.close()
        ops = [json.loads(text) for text in self._op_records()]
        write_lines(self._folder / "imports.jsonl", self._imports(ops))
        write_lines(self._folder / "ops.jsonl", self._ops(ops))
        write_lines(self._folder / "events.jsonl", self._events())
        write_lines(self._folder / "sightings.jsonl", self._sightings())
        write_lines(self._folder / "spans.jsonl", self._spans())
        self._read_tables()

    def _op_records(self) -> list[str]:
        frame = pl.read_parquet(self._folder / "records" / f"{FULL_READS[0]}-*.parquet")
        return frame.filter(pl.col("topic").str.ends_with(TABLE_OPS)).sort("partition", "offset")["text"].to_list()

    def _imports(self, ops: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for op in ops:
            if op["kind"] in MAKING_IMPORTS:
                response = self._http.get(f"/v1/imports/{op['id']}")
                document = response.json() if response.status_code == httpx2.codes.OK else {"state": REQUESTED}
                yield document if _is_import(document) else {"id": op["id"], "missing": True}

    def _ops(self, ops: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """What became of changes of tables, and of requests that made no import."""
        imports = {
            document["id"] for document in read_lines(self._folder / "imports.jsonl") if not document.get("missing")
        }
        for op in ops:
            if op["kind"] in (DEFINE, TRUNCATE) or (op["kind"] == BEGIN and op["id"] not in imports):
                response = self._http.get(f"/v1/ops/{op['id']}")
                known = response.status_code == httpx2.codes.OK
                yield (
                    response.json()
                    if known
                    else {"op": op["id"], "kind": op["kind"], "state": "unknown", "result": None}
                )

    def _events(self) -> Iterator[dict[str, Any]]:
        after = 0
        while page := self._get("/v1/events", after=after, limit=PAGE):
            yield from page["items"]
            if not page["items"]:
                return
            after = page["last"]

    def _spans(self) -> Iterator[dict[str, Any]]:
        for tenant in self._canaries if SPANS in self._capabilities else ():
            yield from self._get(f"/v1/tenants/{tenant}/spans", limit=PAGE)["items"]

    def _sightings(self) -> Iterator[dict[str, Any]]:
        """Canaries in the platform's own logs: they belong to no tenant, so none may be there."""
        for path in sorted((self._platform.home / "logs").glob("*.log*")):
            text = path.read_bytes()
            seen = [tenant for tenant, canary in self._canaries.items() if canary.encode() in text]
            yield {"place": path.name, "tenant": None, "seen": seen}

    def _read_tables(self) -> None:
        kept = [pl.DataFrame(schema=REJECTED)]
        for table in self._tables:
            location = self._platform.home / "lake" / table.tenant / table.name
            errors = self._platform.home / "errors" / table.tenant / table.name
            for reader in READERS if is_there(location) else ():
                save_stored(self._folder, reader, table.tenant, table.name, read_all(location, reader))
            if self._is_sealed(table):
                kept.append(self._told_rejected(table))
            elif is_there(errors):
                kept.append(read_rejected(errors, table.tenant, table.name))
        (self._folder / "rejected").mkdir(exist_ok=True)
        pl.concat(kept, how="vertical_relaxed").write_parquet(self._folder / "rejected" / "all.parquet")

    def _is_sealed(self, table: Table) -> bool:
        return (self._platform.home / "keys" / table.tenant).is_dir()

    def _told_rejected(self, table: Table) -> pl.DataFrame:
        """As the API tells: no other reader can open the error store of a tenant that asked for encryption."""
        kept = []
        for document in read_lines(self._folder / "imports.jsonl"):
            is_ours = (document.get("tenant"), document.get("table")) == table.place
            if is_ours and document["rows"]["rejected"]:
                export = self._http.get(f"/v1/imports/{document['id']}/errors/export", params={"format": "jsonl"})
                rows = map(json.loads, export.raise_for_status().text.splitlines())
                kept += [_as_kept(table, document["id"], row) for row in rows]
        return pl.DataFrame(kept, schema=REJECTED, orient="row")

    def wear(self) -> dict[str, dict[str, int]]:
        places = {f"{t.tenant}/{t.name}": self._platform.home / "lake" / t.tenant / t.name for t in self._tables}
        return {name: wear(location) for name, location in places.items() if is_there(location)}

    def lags(self) -> dict[str, float]:
        """The platform's own gauges of what is not done yet; they are renewed now and then, so some patience is due."""
        deadline = time.monotonic() + LAG_SECONDS
        while True:
            found = {name: float(value) for name, value in LAG.findall(self._http.get("/metrics").text)}
            if time.monotonic() > deadline or (found and not any(found.values())):
                return found
            time.sleep(1.0)

    def _is_subscribed(self, event: dict[str, Any]) -> bool:
        return str(event["data"]["table"]).partition("/")[0] in self._canaries

    def wait_heard(self, delivered: Collection[str] | None, seconds: float = 60.0) -> None:
        """Waits until the listener, and the receiver of webhooks if there is one, have heard what the API tells."""
        deadline = time.monotonic() + seconds
        events = list(self._events())
        told = {event["id"] for event in events}
        due = {event["id"] for event in events if is_terminal(event) and self._is_subscribed(event)}
        due = due if delivered is not None else set()
        while time.monotonic() < deadline:
            heard = {line["event"]["id"] for line in read_lines(self._folder / "heard.jsonl")}
            if told <= heard and due <= set(delivered or ()):
                return
            time.sleep(0.5)


def _is_import(document: dict[str, Any]) -> bool:
    """An op that nobody has evaluated, that repeats one which waits, or that was refused, has made none."""
    was_refused = document["state"] in TERMINAL and document["ended_at"] is None
    return document["state"] != REQUESTED and not was_refused


def _as_kept(table: Table, import_id: str, row: dict[str, Any]) -> tuple[Any, ...]:
    reasons = [f"{reason['column'] or ''}:{reason['rule']}" for reason in row["reasons"]]
    return table.tenant, table.name, import_id, row["row"], 0, row["raw"].encode(), reasons
