"""Files on their way: in one request, by tus in pieces, cancelled half-way, never finished, streamed, sent again."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from checker.board import Board
from checker.caller import Answer, Caller
from checker.history import FAIL, INFO, OK
from checker.making import STREAM, File
from checker.tables import Table

TUS = {"Tus-Resumable": "1.0.0"}
PATIENCE_SECONDS = 150.0
PAUSE_SECONDS = 0.5
INSISTING = 0.85
NOT_WAITING = 0.1


class Sender:
    """Uploads files for one client. Answers the id of the import, or None if there is none."""

    def __init__(self, caller: Caller, board: Board, rng: np.random.Generator) -> None:
        self._caller, self._board, self._rng = caller, board, rng

    def post(self, file: File, span: str | None = None) -> str | None:
        """One request; if its outcome is unknown, mostly the same again until it is known."""
        self._board.opened(file.number, file.rows)
        insists = bool(self._rng.random() < INSISTING)
        params = {"span": span} if span else {}
        if file.table.is_exclusive and self._rng.random() < NOT_WAITING and file.kind != STREAM:
            params["wait_turn"] = "false"
        first = "stream" if file.kind == STREAM else "import"
        return self._admitted(file, self._until_known(first, lambda f: self._post(f, file, params), insists))

    def again(self, file: File) -> None:
        """An old request once more: the same key, the same bytes."""
        self._post("retry", file, {})

    def _post(self, f: str, file: File, params: Mapping[str, str]) -> Answer:
        table = file.table
        path = f"{table.path}/rows" if file.kind == STREAM else f"{table.path}/imports"
        said = params if file.kind == STREAM else {**file.params, **params}
        return self._caller.ask(f, "POST", path, table=table.name, key=file.key, body=file.body, params=said)

    def _until_known(self, first: str, ask: Callable[[str], Answer], insists: bool) -> Answer:
        deadline = time.monotonic() + PATIENCE_SECONDS
        answer = ask(first)
        while time.monotonic() < deadline and not self._board.stop.is_set():
            unreachable = answer.kind == FAIL and answer.status == 0
            if not unreachable and not (answer.kind == INFO and insists):
                break
            self._board.stop.wait(PAUSE_SECONDS)
            answer = ask("retry")
        return answer

    def _admitted(self, file: File, answer: Answer) -> str | None:
        import_id = answer.document.get("id") or answer.document.get("import")
        if answer.kind == OK and import_id:
            self._board.admitted(file.number, import_id)
            return str(import_id)
        if answer.kind != INFO:
            self._board.refused(file.number)
        return None

    def by_pieces(self, file: File, *, stop_after: float = 1.0, cancel: bool = False) -> str | None:
        """By tus, in up to four pieces; breaks off after that share of the bytes, cancelling or just silent."""
        self._board.opened(file.number, file.rows)
        headers = {**TUS, "Upload-Length": str(len(file.body))}
        path, name = f"{file.table.path}/uploads", file.table.name
        begun = self._caller.ask("upload", "POST", path, table=name, key=file.key, headers=headers, params=file.params)
        if begun.kind != OK:
            self._board.refused(file.number)
            return None
        import_id = str(begun.headers["Location"]).rsplit("/", 1)[-1]
        self._board.admitted(file.number, import_id)
        self._patch(file, import_id, int(len(file.body) * stop_after))
        if cancel:
            self._caller.ask("cancel", "POST", f"/v1/imports/{import_id}/cancel", table=name)
        return import_id

    def _patch(self, file: File, import_id: str, until: int) -> None:
        step = max(1, len(file.body) // int(self._rng.integers(1, 5)))
        offset: int | None = 0
        deadline = time.monotonic() + PATIENCE_SECONDS
        while offset is not None and offset < until and time.monotonic() < deadline and not self._board.stop.is_set():
            piece = file.body[offset : min(offset + step, until)]
            headers = {**TUS, "Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream"}
            path = f"/v1/uploads/{import_id}"
            answer = self._caller.ask("patch", "PATCH", path, table=file.table.name, body=piece, headers=headers)
            if answer.kind == OK:
                offset = int(answer.headers.get("Upload-Offset", offset + len(piece)))
            else:
                offset = self._resume_point(file, import_id)

    def _resume_point(self, file: File, import_id: str) -> int | None:
        """Where the platform wants the file to go on; None if it wants no more of it."""
        while not self._board.stop.wait(PAUSE_SECONDS):
            answer = self._caller.ask("resume", "HEAD", f"/v1/uploads/{import_id}", table=file.table.name, headers=TUS)
            if answer.kind == OK:
                return int(answer.headers["Upload-Offset"])
            if answer.kind == FAIL and answer.status:
                return None
        return None

    def status(self, table: Table, import_id: str, wait: float = 0.0) -> dict[str, Any]:
        path, params = f"/v1/imports/{import_id}", {"wait": wait}
        return self._caller.ask("status", "GET", path, table=table.name, params=params).document

    def span(self, name: str, verb: str) -> bool:
        """Begins or ends a span; whether that is known to be done."""
        path = f"/v1/tenants/{self._caller.tenant}/spans/{name}" + ("" if verb == "begin" else f"/{verb}")
        body = b'{"lease_seconds": 25}' if verb == "begin" else b""
        headers = {"Content-Type": "application/json"}
        for _ in range(20):
            answer = self._caller.ask(f"span_{verb}", "POST", path, body=body, headers=headers)
            if answer.kind != INFO and not (answer.kind == FAIL and answer.status == 0):
                return answer.kind == OK
            if self._board.stop.wait(PAUSE_SECONDS):
                break
        return False

    def pages(self, table: Table, import_id: str, limit: int) -> list[int] | None:
        """The row numbers on all pages of rejected rows; None if a page could not be had."""
        rows: list[int] = []
        cursor = ""
        while True:
            params = {"limit": limit, **({"cursor": cursor} if cursor else {})}
            path = f"/v1/imports/{import_id}/errors"
            answer = self._caller.ask("errors", "GET", path, table=table.name, params=params)
            if answer.kind != OK:
                return None
            rows += [item["row"] for item in answer.document["items"]]
            cursor = answer.document.get("next") or ""
            if not cursor:
                return rows
