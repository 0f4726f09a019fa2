"""The command demo: a platform, two tenants, a million rows, and a check that every number adds up.

Exits with 0, or with 1 and what does not add up."""

import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.board import board_for
from millrace.cli.child import ChildPlatform, running_platform
from millrace.cli.declarations import read_declarations
from millrace.cli.declaring import apply_one
from millrace.cli.following import follow
from millrace.cli.mysimbdp_demo import MysimbdpDemo
from millrace.cli.printing import LEAST, LEDGER, exact, ledger_row, print_json, print_table
from millrace.cli.rejected import show_rejected
from millrace.cli.session import EXIT_FAILED, CommandSession
from millrace.cli.tracks import Track
from millrace.cli.uploading import FileUploads
from millrace.client import Millrace, Submission
from millrace.client.documents import ImportDocument
from millrace.model.errors import Missing

if TYPE_CHECKING:
    from millrace.cli.samples import Sample

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWN_REJECTS = 3
# Read back row by row: the small demo is about where rows go, not about how many.
FEW_ROWS = 7_000
app = typer.Typer()


@app.command("demo")
def demo(
    session: CommandSession,
    once: Annotated[bool, typer.Option("--once", help="Check the numbers, stop everything and exit.")] = False,
    mysimbdp: Annotated[
        bool, typer.Option("--mysimbdp", help="As seed 002 describes it: staging, scheduled runs, Cassandra.")
    ] = False,
) -> None:
    """See it work: two sample tenants, a million rows.

    Starts a platform in --home, else in a temporary folder; Ctrl-C stops it."""
    if not EXAMPLES.is_dir():
        raise Missing(
            f"The demo's documents are not at {EXAMPLES}.", remedy="Run the demo from a clone of the repository."
        )
    with ExitStack() as stack:
        files = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-demo-files-")))
        home = session.home or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-demo-")))
        _say(session, f"Starting a platform in {home} …")
        # The sample files are made while the platform starts.
        making = stack.enter_context(ThreadPoolExecutor(1)).submit(_make_samples, files, is_small=mysimbdp)
        environ = {"MILLRACE_MYSIMBDP": "true"} if mysimbdp else {}
        running = stack.enter_context(running_platform(home.expanduser().absolute(), environ))
        _say(session, f"Ready after {running.startup_seconds:.1f} s at {running.url}")
        platform = stack.enter_context(Millrace.from_home(running.home))
        if mysimbdp:
            failures = _show_mysimbdp(session, platform, running.home, making.result())
        else:
            failures = _show(session, platform, making.result())
        code = _serve(session, running, failures, once)
    raise typer.Exit(code)


def _make_samples(folder: Path, *, is_small: bool) -> "list[Sample]":
    # Arrow takes long to import, and help does not need it.
    from millrace.cli.samples import review_sample, speed_sample  # noqa: PLC0415

    if is_small:
        return [speed_sample(folder, FEW_ROWS), review_sample(folder, FEW_ROWS)]
    return [speed_sample(folder), review_sample(folder)]


def _show_mysimbdp(session: CommandSession, platform: Millrace, home: Path, samples: "list[Sample]") -> list[str]:
    failures = MysimbdpDemo(session, platform, home).show(read_declarations([EXAMPLES]), samples)
    if session.json:
        print_json({"ok": not failures, "failures": failures})
    return failures


def _show(session: CommandSession, platform: Millrace, samples: "list[Sample]") -> list[str]:
    """The whole story; what does not add up."""
    for declaration in read_declarations([EXAMPLES]):
        apply_one(platform, declaration)
        _say(session, f"Declared {declaration.name}")
    imported = _import(session, platform, samples)
    documents = [document for of_sample in imported for document in of_sample]
    if not session.json:
        rows = [(f"{each['tenant']}/{each['table']}", *ledger_row(each)[1:]) for each in documents]
        print_table(("table", *LEDGER[1:]), rows, least=LEAST)
        for sample, of_sample in zip(samples, imported, strict=True):
            _tell(platform, sample, of_sample[0])
    pairs = zip(samples, imported, strict=True)
    failures = [failure for pair in pairs for failure in _contradictions(platform, *pair)]
    if session.json:
        print_json({"ok": not failures, "failures": failures, "imports": documents})
    return failures


def _import(session: CommandSession, platform: Millrace, samples: "list[Sample]") -> list[list[ImportDocument]]:
    """Both tenants at once, each tenant's files in order; what became of them, by sample."""
    tracks = [
        [Track(file.path.name, file.path, sample.tenant, sample.table) for file in sample.files] for sample in samples
    ]
    for sample, of_sample in zip(samples, tracks, strict=True):
        FileUploads(platform, Submission(sample.tenant, sample.table), of_sample).start()
    together = [track for of_sample in tracks for track in of_sample]
    with board_for(together, quiet=session.json) as board:
        follow(platform, together, board)
    return [[track.final_document() for track in of_sample] for of_sample in tracks]


def _tell(platform: Millrace, sample: "Sample", first: ImportDocument) -> None:
    print(f"\nSome of the {first['rows']['rejected']:,} rejected rows of {sample.files[0].path.name}:")
    for row in platform.rejected.list(first["id"], limit=SHOWN_REJECTS):
        show_rejected(row)
    print(f"\n> {sample.question}")
    result = platform.query(sample.question)
    print_table([column["name"] for column in result["columns"]], result["rows"], show=exact)


def _contradictions(platform: Millrace, sample: "Sample", documents: list[ImportDocument]) -> Iterator[str]:
    for file, document in zip(sample.files, documents, strict=True):
        name = f"{sample.tenant}/{sample.table} {file.path.name}"
        if document["state"] != "completed":
            yield f"{name}: {document['state']}, {document['error']}"
            continue
        expected = {"read": file.rows, "accepted": file.rows - len(file.bad), "rejected": len(file.bad), "ignored": 0}
        if document["rows"] != expected:
            yield f"{name}: counted {document['rows']}, expected {expected}"
        rejected = [row["row"] for row in platform.rejected.list(document["id"])]
        if rejected != list(file.bad):
            wrong = sorted(set(rejected) ^ set(file.bad))[:5]
            yield f"{name}: rejected {len(rejected)} rows, expected {len(file.bad)}; they differ at rows {wrong}"
    answers = platform.query(sample.question)["rows"]
    if answers != [sample.answer]:
        yield f"{sample.tenant}/{sample.table}: the query gives {answers}, expected {[sample.answer]}"


def _serve(session: CommandSession, running: ChildPlatform, failures: list[str], once: bool) -> int:
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


def _say(session: CommandSession, text: str) -> None:
    if not session.json:
        print(text, flush=True)
