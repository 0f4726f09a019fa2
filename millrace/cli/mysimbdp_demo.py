"""The demo of a platform as seed 002 describes it: uploads are staged, scheduled runs pass them on, Cassandra has the rows.

Each step shows what the platform did and checks it against the sample files."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.cli.declarations import Declaration
from millrace.cli.declaring import apply_one
from millrace.cli.printing import print_table, printable
from millrace.cli.session import CommandSession
from millrace.client import Millrace
from millrace.exchange.core_store import CoreStoreFile
from millrace.exchange.home import Home

if TYPE_CHECKING:
    from millrace.cli.samples import Sample

# Enough for a schedule of every minute, and for its files to be imported.
RUN_SECONDS = 150.0
LOOK_SECONDS = 0.5
COUNTS = ("read", "accepted", "rejected", "ignored")
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stored:
    """What Cassandra holds of one table, read back by CQL."""

    keyspace: str
    rows: int
    updated: int


class MysimbdpDemo:
    def __init__(self, session: CommandSession, platform: Millrace, home: Path) -> None:
        self._session = session
        self._platform = platform
        self._home = home

    def show(self, declarations: "Sequence[Declaration]", samples: "Sequence[Sample]") -> list[str]:
        """The whole story; what does not add up."""
        for declaration in declarations:
            applied = apply_one(self._platform, declaration)
            self._say(f"Declared {declaration.name}")
            for warning in applied.get("warnings", []):
                self._say(f"  warning: {warning['field']} {warning['message']} {warning['likely']}")
        spaces = {declaration.tenant: declaration.document.get("key_space") for declaration in declarations}
        failures = [failure for sample in samples for failure in self._upload(sample)]
        failures += [failure for sample in samples for failure in self._staged(sample)]
        for sample in samples:
            failures += self._of_sample(sample, spaces[sample.tenant])
        return failures

    def _of_sample(self, sample: "Sample", key_space: str | None) -> Iterator[str]:
        runs = self._ended_runs(sample)
        if not runs:
            yield f"{sample.tenant}: its files were not imported within {RUN_SECONDS:g} s"
            return
        yield from self._counted(sample, runs)
        yield from self._read_back(sample, key_space)
        yield from self._logged(sample, runs)

    def _upload(self, sample: "Sample") -> Iterator[str]:
        for file in sample.files:
            with file.path.open("rb") as content:
                answer = self._platform.json(
                    "POST", f"/upload-file/{sample.tenant}", files={"file": (file.path.name, content)}
                )
            self._say(
                f"POST /upload-file/{sample.tenant}: {file.path.name}, {answer['bytes']:,} bytes, {answer['state']}"
            )
            if answer["state"] != "staged":
                yield f"{sample.tenant} {file.path.name}: {answer['state']}, expected staged"

    def _staged(self, sample: "Sample") -> Iterator[str]:
        """In `in`, or taken from there by a run already."""
        listed = self._platform.json("GET", f"/tenant/{sample.tenant}")
        waiting = [each["file"] for each in listed["in"]]
        self._say(f"GET /tenant/{sample.tenant}: in the staging directory: {', '.join(waiting) or 'nothing any more'}")
        taken = any(run["state"] for run in self._platform.apps.runs(sample.tenant))
        missing = [file.path.name for file in sample.files if file.path.name not in waiting]
        if missing and not taken:
            yield f"{sample.tenant}: not in the staging directory: {', '.join(missing)}"

    def _ended_runs(self, sample: "Sample") -> list[Document]:
        """Those that imported the files, the oldest first. A schedule of every minute is waited for; one of every hour has
        its run on request."""
        shown = self._platform.apps.show(sample.tenant)
        schedule, due = shown["schedule"], (shown["status"] or {}).get("next_run_at")
        self._say(f"\n{sample.tenant}: schedule {schedule}, next run at {due}")
        if schedule != "*/1 * * * *":
            self._say(f"  too long to wait for: `millrace app run {sample.tenant}`")
            self._platform.apps.run(sample.tenant)
        ends = time.monotonic() + RUN_SECONDS
        while time.monotonic() < ends:
            runs = [
                run for run in self._platform.apps.runs(sample.tenant) if run["files"]["done"] + run["files"]["failed"]
            ]
            over = all(run["ended_at"] for run in runs)
            if over and sum(run["files"]["done"] + run["files"]["failed"] for run in runs) >= len(sample.files):
                return runs[::-1]
            time.sleep(LOOK_SECONDS)
        return []

    def _counted(self, sample: "Sample", runs: list[Document]) -> Iterator[str]:
        if not self._session.json:
            header = ("run", "cause", "due", "state", "code", "files", *COUNTS)
            print_table(header, [_row(run) for run in runs])
        expected = (sum(file.rows for file in sample.files), sum(len(file.bad) for file in sample.files))
        read, rejected = (sum(run["rows"][name] for run in runs) for name in ("read", "rejected"))
        if (read, rejected) != expected:
            yield f"{sample.tenant}: {read} rows read and {rejected} rejected, expected {expected}"
        if any(run["state"] != "succeeded" or run["files"]["failed"] for run in runs):
            yield f"{sample.tenant}: a run failed: {[(run['state'], run['error'], run['files']) for run in runs]}"
        if sample.table == "product_reviews" and any(run["cause"] != "schedule" for run in runs):
            yield f"{sample.tenant}: a run was not of the schedule"

    def _read_back(self, sample: "Sample", key_space: str | None) -> Iterator[str]:
        stored = read_by_cql(Home(self._home), sample, key_space)
        self._say(
            f"CQL: {stored.rows:,} rows in {stored.keyspace}.{sample.table}, {stored.updated:,} of them {sample.marked}"
        )
        if [stored.rows, stored.updated] != sample.answer:
            yield f"{sample.tenant}: Cassandra has {stored.rows} and {stored.updated} rows, expected {sample.answer}"

    def _logged(self, sample: "Sample", runs: list[Document]) -> Iterator[str]:
        said = b"".join(
            piece for run in runs for piece in self._platform.apps.log(sample.tenant, run["id"], "stdout.log")
        ).decode()
        self._say(f"`millrace app logs {sample.tenant}`:")
        for line in said.splitlines():
            self._say(f"  {printable(line)}")
        missing = [file.path.name for file in sample.files if file.path.name not in said]
        if missing:
            yield f"{sample.tenant}: the log does not tell of {', '.join(missing)}"

    def _say(self, text: str) -> None:
        if not self._session.json:
            print(text, flush=True)


def _row(run: Document) -> tuple[object, ...]:
    known = (run[name] for name in ("id", "cause", "due_at", "state", "exit_code"))
    return *known, run["files"]["done"], *(run["rows"][name] for name in COUNTS)


def read_by_cql(home: Home, sample: "Sample", key_space: str | None) -> Stored:
    # The driver takes long to import, and help does not need it.
    from cassandra.auth import PlainTextAuthProvider  # noqa: PLC0415
    from cassandra.cluster import Cluster  # noqa: PLC0415

    from millrace.sink.cassandra.ddl import keyspace, quoted  # noqa: PLC0415

    login, space = CoreStoreFile(home).read(), keyspace(sample.tenant, key_space)
    who = PlainTextAuthProvider(login.user, login.password)
    cluster = Cluster([login.host], port=login.port, auth_provider=who, connect_timeout=20)
    try:
        session = cluster.connect()
        session.default_timeout = 120
        found = session.execute(f"SELECT {quoted(sample.column)} FROM {quoted(space)}.{quoted(sample.table)}")
        cells = [row[0] for row in found]
    finally:
        cluster.shutdown()
    return Stored(space, len(cells), sum(sample.marks(cell) for cell in cells))
