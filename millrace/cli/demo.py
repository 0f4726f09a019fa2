"""The `demo` command: a platform, two tenants, a million rows, and a check that every number adds up.

Out comes 0, or 1 with what does not add up."""

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from millrace.cli.applying import apply_one
from millrace.cli.board import board_for
from millrace.cli.child import Running, running_platform
from millrace.cli.declarations import read_declarations
from millrace.cli.importing import follow
from millrace.cli.inspecting import show_rejected
from millrace.cli.printing import LEDGER, exact, ledger_row, print_json, print_table
from millrace.cli.samples import Sample, review_sample, speed_sample
from millrace.cli.session import EXIT_FAILED, Session
from millrace.cli.tracks import Track
from millrace.cli.uploading import FileUploads
from millrace.client import Millrace, Submission
from millrace.client.documents import ImportDocument
from millrace.model.errors import Missing

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWN_REJECTS = 3


@dataclass(frozen=True, slots=True)
class Imported:
    """A sample and what became of its files, in the same order."""

    sample: Sample
    documents: list[ImportDocument]


def run(session: Session, once: bool) -> int:
    if not EXAMPLES.is_dir():
        raise Missing(
            f"The demo's documents are not at {EXAMPLES}.", remedy="Run the demo from a clone of the repository."
        )
    with ExitStack() as stack:
        files = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-demo-files-")))
        home = session.home or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-demo-")))
        _say(session, f"Starting a platform in {home} …")
        making = _InBackground(files)
        running = stack.enter_context(running_platform(home.expanduser().absolute()))
        _say(session, f"Ready after {running.startup_seconds:.1f} s at {running.url}")
        connection = stack.enter_context(Millrace.from_home(running.home))
        failures = _show(session, connection, making.samples())
        return _serve(session, running, failures, once)


class _InBackground:
    """Makes the sample files while the platform starts."""

    def __init__(self, folder: Path) -> None:
        self._made: list[Sample] = []
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._make, args=(folder,), daemon=True)
        self._thread.start()

    def _make(self, folder: Path) -> None:
        try:
            self._made += [speed_sample(folder), review_sample(folder)]
        except Exception as failed:
            self._failed = failed

    def samples(self) -> list[Sample]:
        self._thread.join()
        if self._failed is not None:
            raise self._failed
        return self._made


def _show(session: Session, connection: Millrace, samples: list[Sample]) -> list[str]:
    """The whole story; what does not add up."""
    for declaration in read_declarations([EXAMPLES]):
        apply_one(connection, declaration)
        _say(session, f"Declared {declaration.name}")
    imported = _import(session, connection, samples)
    if not session.json:
        rows = [(f"{d['tenant']}/{d['table']}", *ledger_row(d)[1:]) for each in imported for d in each.documents]
        print_table(("table", *LEDGER[1:]), rows)
    for each in imported:
        _tell(session, connection, each)
    failures = [failure for each in imported for failure in _contradictions(connection, each)]
    if session.json:
        documents = [document for each in imported for document in each.documents]
        print_json({"ok": not failures, "failures": failures, "imports": documents})
    return failures


def _import(session: Session, connection: Millrace, samples: list[Sample]) -> list[Imported]:
    """Both tenants at once, each tenant's files in order."""
    tracks = [
        [Track(file.path.name, file.path, sample.tenant, sample.table) for file in sample.files] for sample in samples
    ]
    for sample, of_sample in zip(samples, tracks, strict=True):
        FileUploads(connection, Submission(sample.tenant, sample.table), of_sample).start()
    together = [track for of_sample in tracks for track in of_sample]
    with board_for(together, quiet=session.json) as board:
        follow(connection, together, board)
    return [Imported(s, [track.final_document() for track in of]) for s, of in zip(samples, tracks, strict=True)]


def _tell(session: Session, connection: Millrace, imported: Imported) -> None:
    if session.json:
        return
    sample, first = imported.sample, imported.documents[0]
    print(f"\nSome of the {first['rows']['rejected']:,} rejected rows of {sample.files[0].path.name}:")
    for row in connection.rejected.list(first["id"], limit=SHOWN_REJECTS):
        show_rejected(row)
    print(f"\n> {sample.question}")
    result = connection.query(sample.question)
    print_table([column["name"] for column in result["columns"]], result["rows"], show=exact)


def _contradictions(connection: Millrace, imported: Imported) -> Iterator[str]:
    sample = imported.sample
    for file, document in zip(sample.files, imported.documents, strict=True):
        name = f"{sample.tenant}/{sample.table} {file.path.name}"
        if document["state"] != "completed":
            yield f"{name}: {document['state']}, {document['error']}"
            continue
        expected = {"read": file.rows, "accepted": file.rows - len(file.bad), "rejected": len(file.bad), "ignored": 0}
        if document["rows"] != expected:
            yield f"{name}: counted {document['rows']}, expected {expected}"
        rejected = [row["row"] for row in connection.rejected.list(document["id"])]
        if rejected != list(file.bad):
            wrong = sorted(set(rejected) ^ set(file.bad))[:5]
            yield f"{name}: rejected {len(rejected)} rows, expected {len(file.bad)}; they differ at rows {wrong}"
    answers = connection.query(sample.question)["rows"]
    if answers != [sample.answer]:
        yield f"{sample.tenant}/{sample.table}: the query gives {answers}, expected {[sample.answer]}"


def _serve(session: Session, running: Running, failures: list[str], once: bool) -> int:
    for failure in failures:
        print(f"Does not add up: {failure}", file=sys.stderr, flush=True)
    if not failures:
        _say(session, "\nEvery number adds up.")
    if not once:
        _say(session, f"\n{running.url} keeps serving; try `millrace --home {running.home} status`. Ctrl-C stops it.")
        try:
            running.process.wait()
        except KeyboardInterrupt:
            _say(session, "Stopping …")
    return EXIT_FAILED if failures else 0


def _say(session: Session, text: str) -> None:
    if not session.json:
        print(text, flush=True)
