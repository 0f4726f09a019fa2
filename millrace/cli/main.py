"""The command line: a table of all commands. Each module holds the arguments, the help and the work of its commands."""

from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.commands import Commands, Entry
from millrace.cli.session import Session

TABLE = {
    "up": Entry("up", "Start the platform in the foreground."),
    "demo": Entry("demo", "See it work: two sample tenants, a million rows."),
    "apply": Entry("declaring", "Declare tenants and tables."),
    "import": Entry("importing", "Import files and wait until they are durable."),
    "stream": Entry("streaming", "Stream JSON Lines from standard input, as they come."),
    "status": Entry("imports", "Show how imports are doing."),
    "errors": Entry("rejected", "Show the rejected rows of an import, and why."),
    "cancel": Entry("imports", "Stop an import; rows that were already judged stay."),
    "tables": Entry("tables", "List the tables, or show one closely."),
    "query": Entry("tables", "Ask the tables a question in SQL."),
    "events": Entry("events", "Show what happened, as CloudEvents."),
    "doctor": Entry("doctor", "Check this machine and the platform."),
    "truncate": Entry("tables", "Empty a table."),
    "drop": Entry("tables", "Drop a table. It can be restored for some days."),
    "restore": Entry("tables", "Bring a dropped table back, with its rows."),
    "history": Entry("tables", "Show every definition a table ever had."),
    "reasons": Entry("rejected", "Count the rejected rows of an import by reason."),
    "replay": Entry("rejected", "Judge rejected rows again, by the table as it is now."),
    "amend": Entry("rejected", "Import corrected rows in place of rejected ones."),
    "discard": Entry("rejected", "Give rejected rows up."),
    "validate": Entry("validating", "Judge a file without importing it."),
    "infer": Entry("inferring", "Propose a table's declaration from a file."),
    "diff": Entry("declaring", "Show what applying declarations would change."),
    "export": Entry("declaring", "Write a tenant's agreement and tables as documents."),
    "schema": Entry("declaring", "Print the JSON Schema of a document, for editors."),
    "quality": Entry("imports", "Show how the rules of quality fared."),
    "release": Entry("imports", "Let a held import end as if its rules had been kept."),
    "audit": Entry("accounts", "Show who changed what, when and from where."),
    "usage": Entry("accounts", "Show what a tenant used by day."),
    "token": Entry("tokens", "Make, list and revoke access tokens."),
    "sink": Entry("sinks", "Where a table's rows end up."),
    "app": Entry("apps", "Client apps: the tenants' programs."),
    "k8s": Entry("clusters", "Client apps on Kubernetes, as the agreements say."),
    "span": Entry("spans", "Group imports, and hear when all of them are done."),
    "webhook": Entry("webhooks", "Have events sent to an address of yours."),
    "tenant": Entry("tenants", "List tenants, delete them, bring them back."),
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


if __name__ == "__main__":
    app()
