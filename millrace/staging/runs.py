"""Each run of a tenant's program on disk: its record, reports of its files, its output. The managers write, the server reads.

runs/RUN/run.json, files.jsonl (a report per file), stdout.log, stderr.log (each with older ones beside it), and in files/ the
log files that the program wrote itself. Where the agreement asks for encryption, logs lie sealed in sealed/, under the same
names."""

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from millrace.atomic import replace_file
from millrace.exchange.app_folders import Staging
from millrace.model.agreement import THE_APP
from millrace.model.errors import Missing
from millrace.seal.keyring import Keyring
from millrace.staging.sealed import log_tail, plain_size

# The cause of a run that stands for a program on Kubernetes.
CLUSTER = "cluster"
RUNNING, IMPORTING, SUCCEEDED, FAILED, INTERRUPTED = "running", "importing", "succeeded", "failed", "interrupted"
MOST_REPORT_BYTES = 8 << 20
OVER = (SUCCEEDED, FAILED, INTERRUPTED)
_RUN_ID = re.compile(r"run_[0-9a-hjkmnp-tv-z]{26}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Run:
    """`exit_code`: negative for a signal. `error`: why the platform ended the run or could not begin it. `sealed`: its logs
    are sealed. `given_at`: a file that arrived later may have been missing in `in` when the run began."""

    id: str
    tenant: str
    mode: str
    state: str
    cause: str
    revision: int
    started_at: str
    due_at: str | None = None
    ended_at: str | None = None
    exit_code: int | None = None
    error: str | None = None
    spans: tuple[str, ...] = ()
    files: dict[str, int] = field(default_factory=lambda: {"done": 0, "failed": 0})
    rows: dict[str, int] = field(default_factory=lambda: {"read": 0, "accepted": 0, "rejected": 0, "ignored": 0})
    confinement: dict[str, Any] = field(default_factory=dict)
    sealed: bool = False
    given_at: str | None = None
    app: str = THE_APP

    @property
    def is_over(self) -> bool:
        return self.state in OVER


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def own_logs(self) -> Path:
        """The folder of logs that are not sealed."""
        return self.path / "files"

    @property
    def has_own_logs(self) -> bool:
        return self.own_logs.is_dir() and any(self.own_logs.iterdir())

    @property
    def sealed(self) -> Path:
        """The folder of sealed logs, under the same names."""
        return self.path / "sealed"

    @property
    def sealed_own_logs(self) -> Path:
        return self.sealed / "files"

    def read(self) -> Run:
        document = json.loads((self.path / "run.json").read_text())
        return Run(**{**document, "spans": tuple(document["spans"])})

    def document(self) -> dict[str, Any]:
        """The record as people and programs see it."""
        return asdict(self.read())

    def write(self, run: Run) -> None:
        replace_file(self.path / "run.json", json.dumps(asdict(run)))

    def change(self, **fields: Any) -> Run:
        changed = replace(self.read(), **fields)
        self.write(changed)
        return changed

    def add_reports(self, reports: Sequence[dict[str, Any]]) -> None:
        """A file that is reported before and after a crash counts once."""
        with (self.path / "files.jsonl").open("ab+") as lines:
            # A line that a crash or a full disk cut off spoils no other one.
            is_torn = lines.tell() > 0 and lines.seek(-1, os.SEEK_END) >= 0 and lines.read() != b"\n"
            text = "".join(json.dumps(report) + "\n" for report in reports)
            lines.write(b"\n" * is_torn + text.encode())
        if (self.path / "files.jsonl").stat().st_size > MOST_REPORT_BYTES:
            (self.path / "files.jsonl").replace(self.path / "files.jsonl.1")

    def reports(self) -> list[dict[str, Any]]:
        """The last ones, in the order in which they ended."""
        found: dict[str, dict[str, Any]] = {}
        for name in ("files.jsonl.1", "files.jsonl"):
            with suppress(FileNotFoundError), (self.path / name).open() as lines:
                for line in lines:
                    # One that was cut off is reported again.
                    with suppress(ValueError, KeyError, TypeError):
                        report = json.loads(line)
                        found[report["claim"]] = report
        return list(found.values())

    def recounted(self, run: Run) -> Run:
        """With the files and rows of its reports: a crash may have come between a report and the record. Of a run with very
        many files the first reports are gone; its record stands."""
        if (self.path / "files.jsonl.1").exists():
            return run
        files, rows = dict.fromkeys(run.files, 0), dict.fromkeys(run.rows, 0)
        for report in self.reports():
            files[outcome_of(report)] += 1
            rows = {name: count + report["rows"][name] for name, count in rows.items()}
        return replace(run, files=files, rows=rows)

    def logs(self) -> list[dict[str, Any]]:
        """The name and the length of every kept log."""
        plain = {name: path.stat().st_size for name, path in _logs(self.path).items()}
        sealed = {name: plain_size(path) for name, path in _logs(self.sealed).items()}
        return [{"name": name, "bytes": size} for name, size in sorted({**plain, **sealed}.items())]

    def log_tail(self, name: str, most: int, keys: Keyring) -> Iterator[bytes]:
        """The last bytes of one of `logs`, in pieces."""
        plain, sealed = _logs(self.path), _logs(self.sealed)
        if name in sealed:
            return log_tail(sealed[name], self.read().tenant, keys, most)
        if name not in plain:
            known = ", ".join(sorted({*plain, *sealed})) or "none"
            raise Missing(f"The run has no log {name[:80]!r}.", remedy=f"It has: {known}.", code="no_log")
        return _tail(plain[name], most)


def outcome_of(report: dict[str, Any]) -> str:
    return "done" if report["state"] == "completed" else "failed"


def _logs(root: Path) -> dict[str, Path]:
    found = [*root.glob("std*.log*"), *(root / "files").glob("*")]
    return {str(path.relative_to(root)): path for path in found if path.is_file()}


def _tail(path: Path, most: int) -> Iterator[bytes]:
    with path.open("rb") as log:
        size = os.fstat(log.fileno()).st_size
        log.seek(max(size - most, 0))
        left = min(size, most)
        while left > 0 and (piece := log.read(min(left, 1 << 16))):
            left -= len(piece)
            yield piece


def run_folder(staging: Staging, run_id: str) -> RunFolder:
    folder = RunFolder(staging.runs / run_id)
    if not _RUN_ID.fullmatch(run_id) or not (folder.path / "run.json").is_file():
        raise Missing(f"There is no run {run_id[:40]!r} of {staging.tenant}.", code="no_run")
    return folder


def run_folders(staging: Staging) -> list[RunFolder]:
    """The newest first: their names begin with their time."""
    if not staging.runs.is_dir():
        return []
    found = [path for path in staging.runs.iterdir() if _RUN_ID.fullmatch(path.name)]
    return [RunFolder(path) for path in sorted(found, reverse=True) if (path / "run.json").is_file()]


def forget_runs(staging: Staging, before: str, most: int) -> None:
    """Removes runs that ended before then, and of the others all but the newest `most`."""
    for number, folder in enumerate(run_folders(staging)):
        run = folder.read()
        if run.is_over and (number >= most or (run.ended_at or run.started_at) < before):
            shutil.rmtree(folder.path, ignore_errors=True)
