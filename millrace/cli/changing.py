"""The commands that change tables and rejected rows: truncate, drop, restore, history, replay, amend, discard."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from millrace.cli.printing import print_json, print_table
from millrace.cli.session import EXIT_FAILED, Session
from millrace.client import Millrace
from millrace.client.documents import ImportDocument


def change(session: Session, target: str, what: str, *, wait_turn: bool, wait: bool) -> int:
    tenant, _, table = target.partition("/")
    with Millrace.from_home(session.home) as connection:
        if what == "restore":
            answer = connection.tables.restore(tenant, table)
        else:
            send = connection.tables.drop if what == "drop" else connection.tables.truncate
            answer = send(tenant, table, wait_turn=wait_turn)
        ended = connection.imports.wait(answer["import"]) if wait and "import" in answer else None
    done = {"truncate": "empty", "drop": "dropped", "restore": "back"}[what]
    if session.json:
        print_json({**answer, **({"state": ended["state"]} if ended else {})})
    else:
        print(f"{target} is {done}.")
    return 0 if ended is None or ended["state"] == "completed" else EXIT_FAILED


def history(session: Session, target: str) -> None:
    tenant, _, table = target.partition("/")
    with Millrace.from_home(session.home) as connection:
        found = connection.tables.revisions(tenant, table)
    if session.json:
        for one in found:
            print_json(one)
        return
    rows = [
        (one["revision"], one["generation"], one["defined_at"], ", ".join(c["name"] for c in one["columns"]))
        for one in found
    ]
    print_table(("revision", "generation", "defined", "columns"), rows)


def count(session: Session, import_id: str) -> None:
    with Millrace.from_home(session.home) as connection:
        found = connection.rejected.reasons(import_id)
    if session.json:
        for one in found:
            print_json(one)
        return
    print_table(
        ("rows", "column", "rule", "for example"),
        [(o["rows"], o["column"] or "", o["rule"], o["example"]) for o in found],
    )


def replay_rows(session: Session, import_id: str, rule: str | None, span: str | None, wait: bool) -> int:
    return _follow(session, lambda connection: connection.rejected.replay(import_id, rule=rule, span=span), wait)


def discard_rows(session: Session, import_id: str, rule: str | None) -> int:
    return _follow(session, lambda connection: connection.rejected.discard(import_id, rule=rule), False)


def amend_rows(session: Session, import_id: str, file: Path, rule: str | None, wait: bool) -> int:
    def send(connection: Millrace) -> dict[str, Any]:
        document = connection.rejected.amend(import_id, file, rule=rule)
        return {"import": document["id"]}

    return _follow(session, send, wait)


def _follow(session: Session, ask: Callable[[Millrace], dict[str, Any]], wait: bool) -> int:
    with Millrace.from_home(session.home) as connection:
        answer = ask(connection)
        document = connection.imports.wait(answer["import"]) if wait else connection.imports.show(answer["import"])
    if session.json:
        print_json({**document, **{name: value for name, value in answer.items() if name != "import"}})
    else:
        _say(answer, document)
    return EXIT_FAILED if wait and document["state"] != "completed" else 0


def _say(answer: dict[str, Any], document: ImportDocument) -> None:
    rows = document["rows"]
    told = f"{document['id']} {document['state']}"
    if "rows" in answer:
        told += f", {answer['rows']:,} rows chosen"
    if rows["read"]:
        told += f": {rows['accepted']:,} accepted, {rows['rejected']:,} rejected"
    print(told)
    if answer.get("only_amendable"):
        print(f"{answer['only_amendable']:,} have a key that occurs again in their chunk: amend them.")
