"""The command line, as a table: each command's name, arguments and help. What a command does is in the module it calls."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli import (
    account_commands,
    app_commands,
    k8s_commands,
    log_commands,
    quality_commands,
    schema_commands,
    sink_commands,
    span_commands,
    tenant_commands,
    token_commands,
    whatif,
)
from millrace.cli.commands import Commands
from millrace.cli.lazy import LazyModule
from millrace.cli.session import Session
from millrace.model.formats import either, file_types

if TYPE_CHECKING:
    from millrace.cli import applying, asking, demo, diffing, doctor, importing, inspecting, streaming, up
else:
    applying, asking, demo, diffing, doctor, importing, inspecting, streaming, up = (
        LazyModule(f"millrace.cli.{name}")
        for name in (
            "applying",
            "asking",
            "demo",
            "diffing",
            "doctor",
            "importing",
            "inspecting",
            "streaming",
            "up",
        )
    )

EVERYWHERE = "With every command: --home FOLDER, --json (for programs), --debug (tracebacks)."
EXITS = "Exit codes: 0 everything accepted is durable; 1 failed, cancelled or refused; 2 usage; 3 no platform there."

app = typer.Typer(
    cls=Commands,
    help="Millrace: files in at one end; checked, ordered and counted rows in your tables at the other.",
    epilog=EXITS,
    no_args_is_help=True,
    add_completion=False,
    # Rich help costs as much time as everything else together.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(token_commands.app, name="token")

ImportId = Annotated[str, typer.Argument(metavar="IMPORT", help="The import's id.", show_default=False)]


def command(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return app.command(name, epilog=EVERYWHERE)


@app.callback()
def options(
    context: typer.Context,
    home: Annotated[
        Path | None,
        typer.Option(
            help="Where the platform keeps everything. Default: MILLRACE_HOME, else ~/.millrace.", show_default=False
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Answer for programs: one JSON object a line.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    context.obj = Session(home, json)


@command("up")
def up_command(
    context: typer.Context,
    port: Annotated[int, typer.Option(help="Of the REST API; 0 takes any free one.", min=0, max=65535)] = 8420,
    host: Annotated[
        str | None, typer.Option(help="Address to bind. Default: loopback only.", show_default=False)
    ] = None,
) -> None:
    """Start the platform in the foreground.

    Ctrl-C stops all of it; the data stays, and the next start goes on where it was."""
    up.start(context.obj, port, host)


@command("demo")
def demo_command(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Check the numbers, stop everything and exit.")] = False,
) -> None:
    """See it work: two sample tenants, a million rows.

    Starts a platform in --home, else in a temporary folder; Ctrl-C stops it."""
    raise typer.Exit(demo.run(context.obj, once))


@command("apply")
def apply_command(
    context: typer.Context,
    file: Annotated[
        list[Path], typer.Option("--file", "-f", help="A YAML or JSON file, or a folder of them.", show_default=False)
    ],
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH]...", help="More of them.", show_default=False)
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Of tables whose document names none.", show_default=False)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change, as `diff` does.")] = False,
    new_generation: schema_commands.NewGeneration = False,
    strict: schema_commands.Strict = False,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Try new sinks before anything is declared.")
    ] = True,
) -> None:
    """Declare tenants and tables.

    What is already so stays as it is. A folder may hold an agreement and the tables of its tenant."""
    paths, how = [*file, *(more or [])], {"new_generation": new_generation, "strict": strict}
    if dry_run:
        raise typer.Exit(diffing.run(context.obj, paths, tenant, **how))
    raise typer.Exit(applying.run(context.obj, paths, tenant, **how, check=check))


@command("import")
def import_command(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TENANT/TABLE", show_default=False)],
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Files, or - for standard input.", show_default=False)
    ],
    format: Annotated[str | None, typer.Option(help=f"{either(file_types())}.", show_default=False)] = None,
    delimiter: Annotated[str | None, typer.Option(help="Between the cells of a CSV row.", show_default=False)] = None,
    quote: Annotated[str | None, typer.Option(help="Around cells that need it.", show_default=False)] = None,
    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", help="Whether the first row names the columns.", show_default=False),
    ] = None,
    null_text: Annotated[str | None, typer.Option(help="The cell that means null.", show_default=False)] = None,
    encoding: Annotated[str | None, typer.Option(help="utf-8, utf-16 or latin-1.", show_default=False)] = None,
    compression: Annotated[
        str | None, typer.Option(help="gzip or zstd. Default: by file name.", show_default=False)
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            help="The same key is the same import, however often it is sent. Several files: key:1, key:2 …",
            show_default=False,
        ),
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return when the platform has the files.")] = False,
    fail_on_rejects: Annotated[bool, typer.Option("--fail-on-rejects", help="Exit 1 if any row was rejected.")] = False,
    span: Annotated[str | None, typer.Option(help="The open span that the files join.", show_default=False)] = None,
    span_per_folder: Annotated[
        bool,
        typer.Option("--span-per-folder", help="Make each folder of the files a span, below --span if that is given."),
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the rows whose keys the files hold.")] = False,
    no_turn: Annotated[
        bool, typer.Option("--no-turn", help="On a busy exclusive table: be refused instead of waiting in line.")
    ] = False,
) -> None:
    """Import files and wait until they are durable.

    Where rows of several files have the same key, the later file wins. How a file is
    written is declared with its table; the options say what differs."""
    written = {
        "format": format, "delimiter": delimiter, "quote": quote, "header": header,
        "null_text": null_text, "encoding": encoding, "compression": compression,
    }  # fmt: skip
    wait = not no_wait
    order = importing.Order(
        target,
        tuple(files),
        written,
        idempotency_key,
        wait,
        fail_on_rejects,
        span,
        span_per_folder,
        delete,
        not no_turn,
    )
    raise typer.Exit(importing.run(context.obj, order))


@command("stream")
def stream_command(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TENANT/TABLE", show_default=False)],
    span: Annotated[str | None, typer.Option(help="The open span that the rows join.", show_default=False)] = None,
    stream: Annotated[
        str | None,
        typer.Option(
            help="The stream's name: begun again with the same input, rows that are in are passed over.",
            show_default=False,
        ),
    ] = None,
    fail_on_rejects: Annotated[bool, typer.Option("--fail-on-rejects", help="Exit 1 if any row was rejected.")] = False,
) -> None:
    """Stream JSON Lines from standard input, as they come.

    Rejected rows go to standard error; at the end every row sent is durable or rejected."""
    raise typer.Exit(streaming.run(context.obj, streaming.Order(target, span, stream, fail_on_rejects)))


@command("status")
def status_command(
    context: typer.Context,
    import_id: Annotated[
        str | None, typer.Argument(metavar="[IMPORT]", help="One import; else the latest.", show_default=False)
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow until it is over.")] = False,
    limit: Annotated[int, typer.Option(help="How many of the latest.", min=1)] = 20,
) -> None:
    """Show how imports are doing."""
    raise typer.Exit(inspecting.status(context.obj, import_id, watch, limit))


@command("errors")
def errors_command(
    context: typer.Context,
    import_id: ImportId,
    limit: Annotated[
        int | None, typer.Option(help="At most so many rows. Default: 20, all with --json.", min=1, show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write all of them to a .csv or .jsonl file.", show_default=False)
    ] = None,
) -> None:
    """Show the rejected rows of an import, and why.

    Each with its row number, its line, its original text and every reason."""
    inspecting.errors(context.obj, import_id, limit, out)


@command("cancel")
def cancel_command(context: typer.Context, import_id: ImportId) -> None:
    """Stop an import; rows that were already judged stay."""
    inspecting.cancel(context.obj, import_id)


@command("tables")
def tables_command(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(metavar="[TENANT[/TABLE]]", help="Of one tenant, or one table closely.", show_default=False),
    ] = None,
) -> None:
    """List the tables, or show one closely."""
    inspecting.tables(context.obj, target)


@command("query")
def query_command(
    context: typer.Context,
    sql: Annotated[str, typer.Argument(help="A SELECT over tenant.table views.", show_default=False)],
    max_rows: Annotated[int | None, typer.Option(help="At most so many rows.", min=1, show_default=False)] = None,
) -> None:
    """Ask the tables a question in SQL."""
    asking.query(context.obj, sql, max_rows)


@command("events")
def events_command(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as they happen.")] = False,
    after: Annotated[int, typer.Option(help="Only events after this number.", min=0)] = 0,
    limit: Annotated[int, typer.Option(help="How many, without --follow.", min=1)] = 100,
) -> None:
    """Show what happened, as CloudEvents."""
    asking.events(context.obj, follow, after, limit)


@command("doctor")
def doctor_command(context: typer.Context) -> None:
    """Check this machine and the platform.

    Java, jars, disk, home and every part of the platform, each with what to do about it."""
    raise typer.Exit(doctor.run(context.obj))


log_commands.register(app)
app.add_typer(sink_commands.app, name="sink")
app.add_typer(app_commands.app, name="app")
app.add_typer(k8s_commands.app, name="k8s")
span_commands.register(app)
whatif.register(app)
schema_commands.register(app)
tenant_commands.register(app)
quality_commands.register(app)
account_commands.register(app)

if __name__ == "__main__":
    app()
