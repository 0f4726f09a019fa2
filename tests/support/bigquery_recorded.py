"""What BigQuery answers to the requests of a sink, as its reference has it, for what its emulator gets wrong: job ids that
come again, jobs that fail, quotas. It keeps every request; it runs no SQL.

`refusals` are answered once each, to the first request whose method and path fit: (method, part of the path, status,
reason)."""

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow.parquet as pq

Answer = tuple[int, dict[str, Any]]
LOCATION = "Location"


@dataclass
class Recorded:
    url: str = ""
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    refusals: list[tuple[str, str, int, str]] = field(default_factory=list)
    bad_text: str | None = None
    _uploading: dict[str, Any] = field(default_factory=dict)

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        for one in self.refusals:
            if one[0] == method and one[1] in path:
                self.refusals.remove(one)
                return _problem(one[2], one[3])
        parts = path.partition("?")[0].strip("/").split("/")
        if parts[0] == "upload":
            return self._begin_load(json.loads(body)) if method == "POST" else self._load(body)
        if "tables" in parts:
            return self._table(method, parts[-1], body)
        if "jobs" in parts or "queries" in parts:
            return self._query(json.loads(body)) if method == "POST" else self._result(parts[-2], parts[-1])
        return 200, json.loads(body) if body else {"datasetReference": {"projectId": "p", "datasetId": parts[-1]}}

    def _result(self, of: str, job_id: str) -> Answer:
        if job_id not in self.jobs:
            return _problem(404, "notFound")
        job = self.jobs[job_id]
        if of == "jobs":
            return 200, job
        rows = {"totalRows": "0", "schema": {"fields": [{"name": "x", "type": "STRING"}]}, "rows": []}
        return 200, {"jobComplete": True, **rows, "jobReference": job["jobReference"]}

    def _table(self, method: str, name: str, body: bytes) -> Answer:
        if method == "POST":
            told = json.loads(body)
            name = told["tableReference"]["tableId"]
            if name in self.tables:
                return _problem(409, "duplicate")
            self.tables[name] = {**told, "numRows": "0", "etag": "1"}
            return 200, self.tables[name]
        if name not in self.tables:
            return _problem(404, "notFound")
        if method == "PATCH":
            self.tables[name] |= json.loads(body)
        if method == "DELETE":
            del self.tables[name]
            return 204, {}
        return 200, self.tables[name]

    def _query(self, told: dict[str, Any]) -> Answer:
        statement = told["configuration"]["query"]["query"]
        self.statements.append(statement)
        if statement.startswith("CREATE TABLE"):
            project, dataset, name = statement.split("`")[1].split(".")
            place = {"projectId": project, "datasetId": dataset, "tableId": name}
            self.tables[name] = {"tableReference": place, "numRows": "0", "etag": "1"}
        return 200, self._done(told)

    def _begin_load(self, told: dict[str, Any]) -> Answer:
        """The first of the two requests of an upload; the answer says where the bytes go."""
        if told["jobReference"]["jobId"] in self.jobs:
            return _problem(409, "duplicate")
        self._uploading = told
        return 200, {LOCATION: f"{self.url}/upload/bytes"}

    def _load(self, body: bytes) -> Answer:
        told = self._uploading
        self.loads.append(told["jobReference"]["jobId"])
        table = pq.read_table(io.BytesIO(body))
        if self.bad_text is not None and self.bad_text in table["text"].to_pylist():
            return 200, self._done(told, {"reason": "invalid", "message": "no such text"})
        self.tables[told["configuration"]["load"]["destinationTable"]["tableId"]]["numRows"] = str(table.num_rows)
        return 200, self._done(told)

    def _done(self, told: dict[str, Any], error: dict[str, str] | None = None) -> dict[str, Any]:
        status = {"state": "DONE", **({"errorResult": error, "errors": [error]} if error else {})}
        job = {**told, "status": status, "statistics": {}, "kind": "bigquery#job"}
        self.jobs[told["jobReference"]["jobId"]] = job
        return job


def _problem(status: int, reason: str) -> Answer:
    error = {"domain": "global", "reason": reason, "message": f"{reason}, as recorded"}
    return status, {"error": {"code": status, "message": error["message"], "errors": [error]}}


@contextmanager
def recorded_bigquery() -> Iterator[Recorded]:
    recorded = Recorded()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, told = recorded.answer(self.command, self.path, body)
            said = b"" if status == 204 else json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if LOCATION in told:
                self.send_header(LOCATION, told[LOCATION])
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    recorded.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield recorded
    finally:
        server.shutdown()
        thread.join(20)
        server.server_close()
