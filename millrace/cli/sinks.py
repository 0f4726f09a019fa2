"""The commands about a table's sinks: list, resume, waive."""

import typer

from millrace.cli.printing import print_json, print_table
from millrace.cli.session import Session
from millrace.client import Millrace
from millrace.client.connection import path_part


def show(session: Session, target: str) -> None:
    with Millrace.from_home(session.home) as connection:
        found = connection.json("GET", _route(target))["items"]
    if session.json:
        for one in found:
            print_json(one)
        return
    rows = [
        (
            one["name"],
            one["kind"],
            one["required"],
            one.get("waiting", 0),
            one.get("lag_seconds"),
            one.get("reason") or "",
        )
        for one in found
    ]
    print_table(("sink", "kind", "required", "waiting", "lag s", "parked because"), rows)


def act(session: Session, target: str, sink: str, what: str) -> None:
    with Millrace.from_home(session.home) as connection:
        answer = connection.json("POST", f"{_route(target)}/{path_part(sink)}/{what}")
    if session.json:
        print_json(answer)
    elif what == "waive":
        print(f"{len(answer['imports'])} imports no longer wait for {sink}.")
    else:
        print(f"{sink} is tried again now.")


def _route(target: str) -> str:
    tenant, _, table = target.partition("/")
    if not table:
        raise typer.BadParameter(f"{target} should be TENANT/TABLE.")
    return f"/v1/tenants/{path_part(tenant)}/tables/{path_part(table)}/sinks"
