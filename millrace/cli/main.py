"""The command line: a table of all commands. Each module holds the arguments, the help and the work of its commands."""

from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.commands import CommandEntry, Commands

TABLE = {
    "up": CommandEntry("up", "Start the platform in the foreground."),
    "demo": CommandEntry("demo", "See it work: two sample tenants, a million rows."),
    "apply": CommandEntry("declaring", "Declare tenants and tables."),
    "import": CommandEntry("importing", "Import files and wait until they are durable."),
    "stream": CommandEntry("streaming", "Stream JSON Lines from standard input, as they come."),
    "status": CommandEntry("imports", "Show how imports are doing."),
    "errors": CommandEntry("rejected", "Show the rejected rows of an import, and why."),
    "cancel": CommandEntry("imports", "Stop an import; rows that were already judged stay."),
    "tables": CommandEntry("tables", "List the tables, or show one closely."),
    "query": CommandEntry("tables", "Ask the tables a question in SQL."),
    "events": CommandEntry("accounts", "Show what happened, as CloudEvents."),
    "doctor": CommandEntry("doctor", "Check this machine and the platform."),
    "truncate": CommandEntry("tables", "Empty a table."),
    "drop": CommandEntry("tables", "Drop a table. It can be restored for some days."),
    "restore": CommandEntry("tables", "Bring a dropped table back, with its rows."),
    "history": CommandEntry("tables", "Show every definition a table ever had."),
    "reasons": CommandEntry("rejected", "Count the rejected rows of an import by reason."),
    "replay": CommandEntry("rejected", "Judge rejected rows again, by the table as it is now."),
    "amend": CommandEntry("rejected", "Import corrected rows in place of rejected ones."),
    "discard": CommandEntry("rejected", "Give rejected rows up."),
    "validate": CommandEntry("validating", "Judge a file without importing it."),
    "infer": CommandEntry("inferring", "Propose a table's declaration from a file."),
    "diff": CommandEntry("declaring", "Show what applying declarations would change."),
    "export": CommandEntry("declaring", "Write a tenant's agreement and tables as documents."),
    "schema": CommandEntry("declaring", "Print the JSON Schema of a document, for editors."),
    "quality": CommandEntry("imports", "Show how the rules of quality fared."),
    "release": CommandEntry("imports", "Let a held import end as if its rules had been kept."),
    "audit": CommandEntry("accounts", "Show who changed what, when and from where."),
    "usage": CommandEntry("accounts", "Show what a tenant used by day."),
    "token": CommandEntry("tokens", "Make, list and revoke access tokens."),
    "sink": CommandEntry("sinks", "Where a table's rows end up."),
    "app": CommandEntry("apps", "Client apps: the tenants' programs."),
    "k8s": CommandEntry("clusters", "Client apps on Kubernetes, as the agreements say."),
    "span": CommandEntry("spans", "Group imports, and hear when all of them are done."),
    "webhook": CommandEntry("webhooks", "Have events sent to an address of yours."),
    "tenant": CommandEntry("tenants", "List tenants, delete them, bring them back."),
}


class _Millrace(Commands):
    table = TABLE


app = typer.Typer(
    cls=_Millrace,
    help="Millrace: files in at one end; checked, ordered and counted rows in your tables at the other.",
    epilog="Exit codes: 0 everything accepted is durable; 1 failed, cancelled or refused; 2 usage; 3 no platform there.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415

        print(f"millrace {version('millrace')}")
        raise typer.Exit(0)


@app.callback()
def options(
    home: Annotated[
        Path | None, typer.Option(help="Where the platform keeps everything. Default: MILLRACE_HOME, else ~/.millrace.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Answer for programs: one JSON object a line.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


if __name__ == "__main__":
    app()
