"""Files made and sent: rows chosen by a seed, written to the dump before the first request, then uploaded in some way.

Ways: one request; several by tus; by tus and cancelled half-way; by tus and never finished."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from checker import flavours
from checker.board import Board, Lines
from checker.caller import Answer, Caller
from checker.history import FAIL, INFO, OK
from checker.rendering import render, render_keys
from checker.rows import SCHEMA
from checker.tables import Table, zipf_keys

MOST_ROWS = 50_000
TUS = {"Tus-Resumable": "1.0.0"}
PATIENCE_SECONDS = 150.0
PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class File:
    number: int
    table: Table
    key: str
    format: str
    rows: int
    body: bytes

    @property
    def params(self) -> dict[str, str]:
        return {"format": self.format, "file_name": f"{self.number}.{self.format}"}


class Maker:
    """Makes files and notes them in the dump."""

    def __init__(self, seed: int, canaries: dict[str, str], folder: Path, board: Board) -> None:
        self._seed, self._canaries, self._board = seed, canaries, board
        self._folder = folder / "rows"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lines = Lines(folder / "files.jsonl")

    def make(self, rng: np.random.Generator, table: Table, count: int, *, deletes: bool = False) -> File:
        number = self._board.next_file()
        file_format = "csv" if rng.random() < 0.5 else "jsonl"
        known = table.known
        added = list(known.added[: int(rng.integers(0, len(known.added) + 1))])
        early = known.next_name if file_format == "jsonl" and not deletes else None
        frame = self._rows(rng, number, count, file_format, early, deletes)
        key = f"{self._seed}-{number}"
        about = {
            "file": number,
            "tenant": table.tenant,
            "table": table.name,
            "key": key,
            "rows": count,
            "deletes": deletes,
        }
        frame.write_parquet(self._folder / f"{number:06d}.parquet")
        self._lines.add({**about, "format": file_format, "added": [] if deletes else added, "early": early})
        canary = self._canaries[table.tenant]
        body = render_keys(frame["k"], file_format) if deletes else render(frame, canary, file_format, added, early)
        return File(number, table, key, file_format, count, body)

    def _rows(
        self, rng: np.random.Generator, number: int, count: int, file_format: str, early: str | None, deletes: bool
    ) -> pl.DataFrame:
        flavour = flavours.choose(rng, count, file_format)
        if deletes:
            flavour = np.full(count, flavours.DELETE)
        return pl.DataFrame(
            {
                "file": np.full(count, number),
                "row": np.arange(1, count + 1),
                "k": zipf_keys(rng, count),
                "nonce": rng.integers(0, 1 << 32, count),
                "flavour": flavour,
            },
            schema=SCHEMA,
        )


def some_rows(rng: np.random.Generator) -> int:
    """From one row to tens of thousands, small files much more often."""
    return int(np.exp(rng.uniform(0.0, np.log(MOST_ROWS))))


class Sender:
    """Uploads files for one client. Answers the id of the import, or None if there is none."""

    def __init__(self, caller: Caller, board: Board, rng: np.random.Generator) -> None:
        self._caller, self._board, self._rng = caller, board, rng

    def post(self, file: File) -> str | None:
        """One request; if its outcome is unknown, mostly the same again until it is known."""
        self._board.opened(file.number, file.rows)
        insists = self._rng.random() < 0.85
        return self._admitted(file, self._until_known(lambda f: self._post(f, file), insists))

    def again(self, file: File) -> str | None:
        """An old request once more: the same key, the same bytes."""
        answer = self._post("retry", file)
        return str(answer.document["id"]) if answer.kind == OK and "id" in answer.document else None

    def _post(self, f: str, file: File) -> Answer:
        table = file.table
        return self._caller.ask(
            f, "POST", f"{table.path}/imports", table=table.name, key=file.key, body=file.body, params=file.params
        )

    def _until_known(self, ask: Callable[[str], Answer], insists: bool) -> Answer:
        deadline = time.monotonic() + PATIENCE_SECONDS
        answer = ask("import")
        while time.monotonic() < deadline and not self._board.stop.is_set():
            unreachable = answer.kind == FAIL and answer.status == 0
            if not unreachable and not (answer.kind == INFO and insists):
                break
            self._board.stop.wait(PAUSE_SECONDS)
            answer = ask("retry")
        return answer

    def _admitted(self, file: File, answer: Answer) -> str | None:
        import_id = answer.document.get("id")
        if answer.kind == OK and import_id:
            self._board.admitted(file.number, import_id)
            return str(import_id)
        if answer.kind == FAIL:
            self._board.refused(file.number)
        return None

    def by_pieces(self, file: File, *, stop_after: float = 1.0, cancel: bool = False) -> str | None:
        """By tus, in up to four pieces; breaks off after that share of the bytes, cancelling or just silent."""
        self._board.opened(file.number, file.rows)
        headers = {**TUS, "Upload-Length": str(len(file.body))}
        begun = self._caller.ask(
            "upload",
            "POST",
            f"{file.table.path}/uploads",
            table=file.table.name,
            key=file.key,
            headers=headers,
            params=file.params,
        )
        if begun.kind != OK:
            self._board.refused(file.number)
            return None
        import_id = str(begun.headers["Location"]).rsplit("/", 1)[-1]
        self._board.admitted(file.number, import_id)
        self._patch(file, import_id, int(len(file.body) * stop_after))
        if cancel:
            self.cancel(file.table, import_id)
        return import_id

    def _patch(self, file: File, import_id: str, until: int) -> None:
        step = max(1, len(file.body) // int(self._rng.integers(1, 5)))
        offset, deadline = 0, time.monotonic() + PATIENCE_SECONDS
        while offset < until and time.monotonic() < deadline and not self._board.stop.is_set():
            piece = file.body[offset : min(offset + step, until)]
            answer = self._caller.ask(
                "patch", "PATCH", f"/v1/uploads/{import_id}", table=file.table.name, body=piece,
                headers={**TUS, "Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream"},
            )  # fmt: skip
            if answer.kind == OK:
                offset = int(answer.headers.get("Upload-Offset", offset + len(piece)))
                continue
            resumed = self._resume_point(file, import_id)
            if resumed is None:
                return
            offset = resumed

    def _resume_point(self, file: File, import_id: str) -> int | None:
        """Where the platform wants the file to go on; None if it wants no more of it."""
        while not self._board.stop.wait(PAUSE_SECONDS):
            answer = self._caller.ask("resume", "HEAD", f"/v1/uploads/{import_id}", table=file.table.name, headers=TUS)
            if answer.kind == OK:
                return int(answer.headers["Upload-Offset"])
            if answer.kind == FAIL and answer.status:
                return None
        return None

    def cancel(self, table: Table, import_id: str) -> None:
        self._caller.ask("cancel", "POST", f"/v1/imports/{import_id}/cancel", table=table.name)

    def status(self, table: Table, import_id: str, wait: float = 0.0) -> dict[str, Any]:
        return self._caller.ask(
            "status", "GET", f"/v1/imports/{import_id}", table=table.name, params={"wait": wait}
        ).document
