"""Arguments that several commands take, and what they mean."""

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.session import EXIT_FAILED, CommandSession
from millrace.model.errors import Invalid

STDIN = "-"

Target = Annotated[str, typer.Argument(metavar="TENANT/TABLE")]


def import_id_of(given: str | None) -> str | None:
    """Refuses what can be no id, such as the name of a table."""
    if given is not None and not re.fullmatch(r"\w+", given, re.ASCII):
        raise typer.BadParameter(
            f"{given!r:.80} is no id of an import. `millrace status` lists imports; `millrace tables` shows tables."
        )
    return given


ImportId = Annotated[str, typer.Argument(metavar="IMPORT", help="The import's id.", callback=import_id_of)]
MaybeImportId = Annotated[
    str | None, typer.Argument(metavar="[IMPORT]", help="One import; else the latest.", callback=import_id_of)
]
TenantName = Annotated[str, typer.Argument(metavar="TENANT")]
OfTenant = Annotated[str | None, typer.Option("--tenant", help="Whose. Default: the only one the token can see.")]
Confirm = Annotated[str | None, typer.Option(help="The tenant's name again; else it is asked for.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return once it is accepted.")]
NoTurn = Annotated[
    bool, typer.Option("--no-turn", help="On a busy exclusive table: be refused instead of waiting in line.")
]
FailOnRejects = Annotated[bool, typer.Option("--fail-on-rejects", help="Exit 1 if any row was rejected.")]
Documents = Annotated[list[Path], typer.Option("--file", "-f", help="A YAML or JSON file, or a folder of them.")]
MoreDocuments = Annotated[list[Path] | None, typer.Argument(metavar="[PATH]...", help="More of them.")]

# How a file is written, where that differs from its table's declaration.
Format = Annotated[str | None, typer.Option(help="csv, jsonl, avro or parquet.")]
Delimiter = Annotated[str | None, typer.Option(help="Between the cells of a CSV row.")]
Quote = Annotated[str | None, typer.Option(help="Around cells that need it.")]
Header = Annotated[bool | None, typer.Option("--header/--no-header", help="Whether the first row names the columns.")]
NullText = Annotated[str | None, typer.Option(help="The cell that means null.")]
Encoding = Annotated[str | None, typer.Option(help="utf-8, utf-16, latin-1 or windows-1252.")]
Compression = Annotated[str | None, typer.Option(help="gzip or zstd. Default: by file name.")]


_AGO = re.compile(r"([0-9]{1,6})([smhd])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def moment(text: str) -> datetime:
    """A time, in this machine's zone if it names none; or so long ago."""
    if ago := _AGO.fullmatch(text):
        return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is no time: write 10m, 2h, 3d or 2026-11-16T08:00.") from None


def split_target(target: str) -> tuple[str, str]:
    tenant, slash, table = target.partition("/")
    if not (tenant and slash and table) or "/" in table:
        raise typer.BadParameter(f"{target!r} is not TENANT/TABLE.")
    return tenant, table


def of_tenant(session: CommandSession, tenant: str | None) -> str:
    """The tenant named, else the only one the token can see."""
    if tenant is not None:
        return tenant
    names = [str(each["name"]) for each in session.platform.tenants.list()]
    if len(names) != 1:
        known = ", ".join(names[:20]) or "none"
        raise Invalid(f"It is not clear which tenant is meant: {known}.", remedy="Name one with --tenant.")
    return names[0]


def refuse_unconfirmed(tenant: str, confirm: str | None, question: str, done: str) -> None:
    """Ends the command unless the tenant's name was repeated; on a terminal it is asked for."""
    if confirm is None and sys.stdin.isatty():
        confirm = typer.prompt(question)
    if confirm != tenant:
        print(f"Not {done}: --confirm {tenant} is missing.", file=sys.stderr)
        raise typer.Exit(EXIT_FAILED)
