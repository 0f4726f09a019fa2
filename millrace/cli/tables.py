"""The commands about tables: tables, query, truncate, drop, restore, history."""

import sys
from typing import Annotated, Any

import typer

from millrace.cli.arguments import NoTurn, NoWait, Target, split_target
from millrace.cli.printing import answer, answer_all, counted, exact, print_json, print_table
from millrace.cli.session import EXIT_FAILED, CommandSession
from millrace.client.documents import TableDocument

app = typer.Typer()


@app.command("tables")
def tables(
    session: CommandSession,
    target: Annotated[
        str | None, typer.Argument(metavar="[TENANT[/TABLE]]", help="Of one tenant, or one table closely.")
    ] = None,
) -> None:
    """List the tables, or show one closely."""
    tenant, _, table = (target or "").partition("/")
    if table:
        return _show_table(session, session.platform.tables.show(tenant, table))
    tenants = [tenant] if tenant else [str(each["name"]) for each in session.platform.tenants.list()]
    found = [each for name in tenants for each in session.platform.tables.list(name)]
    answer_all(session, ("table", "revision", "primary key", "location"), found, _row)


def _row(table: TableDocument) -> tuple[object, ...]:
    key = ", ".join(table["primary_key"])
    return f"{table['tenant']}/{table['table']}", table["revision"], key, table["location"]


def _show_table(session: CommandSession, table: TableDocument) -> None:
    if session.json:
        return print_json(table)
    print(f"{table['tenant']}/{table['table']} revision {table['revision']} at {table['location']}")
    if table["declaration"].get("change_feed"):
        print("It has a change feed.")
    key = {name: number for number, name in enumerate(table["primary_key"], start=1)}
    rows = [(c["name"], c["type"], c["nullable"], key.get(c["name"])) for c in table["columns"]]
    print_table(("column", "type", "nullable", "key"), rows)


@app.command("query")
def query(
    session: CommandSession,
    sql: Annotated[str, typer.Argument(help="A SELECT over tenant.table views.")],
    max_rows: Annotated[int | None, typer.Option(help="At most so many rows.", min=1)] = None,
) -> None:
    """Ask the tables a question in SQL."""
    result = session.platform.query(sql, max_rows=max_rows)
    if session.json:
        return print_json(result)
    print_table([column["name"] for column in result["columns"]], result["rows"], show=exact)
    more = ", more were cut off" if result["truncated"] else ""
    print(f"{counted(len(result['rows']), 'row')}{more}; {result['seconds']:.3f} s", file=sys.stderr)


@app.command("truncate")
def truncate(session: CommandSession, target: Target, no_turn: NoTurn = False, no_wait: NoWait = False) -> None:
    """Empty a table.

    Rows of every import before this one go, also those still on their way."""
    done: dict[str, Any] = session.platform.tables.truncate(*split_target(target), wait_turn=not no_turn)
    if not no_wait and "import" in done:
        done = {**done, "state": session.platform.imports.wait(done["import"])["state"]}
    answer(session, done, f"{target} is empty.")
    raise typer.Exit(0 if done.get("state", "completed") == "completed" else EXIT_FAILED)


@app.command("drop")
def drop(session: CommandSession, target: Target, no_turn: NoTurn = False) -> None:
    """Drop a table. It can be restored for some days."""
    done = session.platform.tables.drop(*split_target(target), wait_turn=not no_turn)
    answer(session, done, f"{target} is dropped.")


@app.command("restore")
def restore(session: CommandSession, target: Target) -> None:
    """Bring a dropped table back, with its rows."""
    done = session.platform.tables.restore(*split_target(target))
    answer(session, done, f"{target} is back.")


@app.command("history")
def history(session: CommandSession, target: Target) -> None:
    """Show every definition a table ever had."""
    found = session.platform.tables.revisions(*split_target(target))
    answer_all(session, ("revision", "generation", "defined", "columns"), found, _revision_row)


def _revision_row(each: dict[str, Any]) -> tuple[object, ...]:
    columns = ", ".join(column["name"] for column in each["columns"])
    return each["revision"], each["generation"], each["defined_at"], columns
