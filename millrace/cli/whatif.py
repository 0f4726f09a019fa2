"""The what-if commands as main.py registers them: `validate` and `infer`, their arguments and help."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.lazy import LazyModule
from millrace.model.formats import either, file_types, titles

if TYPE_CHECKING:
    from millrace.cli import inferring, validating
else:
    inferring, validating = (LazyModule(f"millrace.cli.{name}") for name in ("inferring", "validating"))

EVERYWHERE = "With every command: --home FOLDER, --json (for programs), --debug (tracebacks)."


def register(app: typer.Typer) -> None:
    app.command("validate", epilog=EVERYWHERE)(validate_command)
    app.command("infer", epilog=EVERYWHERE)(infer_command)


def validate_command(
    context: typer.Context,
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="A file, or - for standard input.", show_default=False)
    ] = None,
    table: Annotated[
        str | None, typer.Option(metavar="TENANT/TABLE", help="The table to judge by.", show_default=False)
    ] = None,
    declaration: Annotated[
        Path | None,
        typer.Option(
            "--with",
            help="Judge by this declaration instead; without --table no platform is needed.",
            show_default=False,
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(help="Instead of a file: the last N chunks sent to the table.", min=1, show_default=False),
    ] = None,
    rows: Annotated[int | None, typer.Option(help="Stop after about so many rows.", min=1, show_default=False)] = None,
    examples: Annotated[int, typer.Option(help="Of each reason.", min=0, max=20)] = 3,
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
) -> None:
    """Judge a file without importing it.

    Shows which rows would pass and fail and why, and for each failing column the types that
    would take all its values. Exit 0: every row passes; 1: some would be rejected, or the file
    would be refused."""
    written = {
        "format": format, "delimiter": delimiter, "quote": quote, "header": header,
        "null_text": null_text, "encoding": encoding, "compression": compression,
    }  # fmt: skip
    question = validating.Question(file, table, declaration, last, rows, examples, written)
    raise typer.Exit(validating.run(context.obj, question))


def infer_command(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help=f"{either(titles())}.", show_default=False)],
    name: Annotated[str | None, typer.Option(help="The table's name. Default: the file's.", show_default=False)] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the declaration to a .yaml or .json file.", show_default=False)
    ] = None,
) -> None:
    """Propose a table's declaration from a file.

    File type, dialect, column types, what may be null and the likely primary key; needs no platform."""
    inferring.run(context.obj, file, name, out)
