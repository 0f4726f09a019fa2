"""The commands about imports that are under way or over: status, cancel, quality, release."""

import sys
from typing import Annotated, Any

import typer

from millrace.cli.arguments import ImportId, MaybeImportId, NoWait
from millrace.cli.following import watch_import
from millrace.cli.printing import (
    LEAST,
    LEDGER,
    answer,
    answer_all,
    ledger_line,
    ledger_row,
    print_json,
    print_table,
    printable,
    repeated_headers,
)
from millrace.cli.rejected import states_line
from millrace.cli.session import EXIT_FAILED, CommandSession
from millrace.client.documents import ImportDocument, waits_for
from millrace.client.errors import Problem

SHOWN_SAMPLES = 5
app = typer.Typer()


@app.command("status")
def status(
    session: CommandSession,
    import_id: MaybeImportId = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow until it is over.")] = False,
    limit: Annotated[int, typer.Option(help="How many of the latest.", min=1)] = 20,
) -> None:
    """Show how imports are doing."""
    if import_id is None:
        headers = ("import", "table", *LEDGER[1:])
        latest = session.platform.imports.list(limit=limit)
        answer_all(session, headers, latest, _latest_row, LEAST)
        for each in [] if session.json else latest:
            if waiting := waits_for(each):
                print(printable(f"{each['id']} {waiting}"), file=sys.stderr)
        return
    document = session.platform.imports.show(import_id)
    if watch:
        document = watch_import(session.platform, document, quiet=session.json)
    _show(session, document)
    raise typer.Exit(EXIT_FAILED if watch and document["state"] != "completed" else 0)


def _latest_row(document: ImportDocument) -> tuple[object, ...]:
    return document["id"], f"{document['tenant']}/{document['table']}", *ledger_row(document)[1:]


def _show(session: CommandSession, document: ImportDocument) -> None:
    try:
        location = session.platform.tables.show(document["tenant"], document["table"])["location"]
    except Problem:
        location = ""
    if session.json:
        return print_json({**document, "location": location})
    facts: list[tuple[str, object]] = [*zip(LEDGER, ledger_row(document), strict=True)]
    facts.insert(1, ("table", f"{document['tenant']}/{document['table']}"))
    facts += [("bytes", document.get("bytes")), ("started", document["started_at"]), ("ended", document["ended_at"])]
    if repeated := repeated_headers(document):
        facts.append(("repeated headers", f"{repeated:,} skipped"))
    if document["rows"]["rejected"]:
        facts.append(("rejected rows", states_line(document.get("rejected_rows", {}))))
    facts.append(("location", location))
    if waiting := waits_for(document):
        facts.append(("waiting", waiting))
    if error := document["error"]:
        facts.append(("error", f"{error['message']} {error['remedy']}".strip()))
    print_table(("", ""), facts)


@app.command("cancel")
def cancel(session: CommandSession, import_id: ImportId) -> None:
    """Stop an import; rows that were already judged stay."""
    document = session.platform.imports.cancel(import_id)
    answer(session, document, f"{document['id']} {document['state']}")


@app.command("quality")
def quality(
    session: CommandSession,
    target: Annotated[str, typer.Argument(metavar="IMPORT|TENANT/TABLE", help="One import, or a table's trend.")],
    last: Annotated[int, typer.Option(help="How many imports make the trend.", min=1, max=500)] = 20,
) -> None:
    """Show how the rules of quality fared.

    In one import, or over a table's last ones."""
    tenant, slash, table = target.partition("/")
    find = session.platform.quality
    found = find.of_table(tenant, table, last=last) if slash else find.of_import(target)
    if session.json:
        print_json(found)
    elif slash:
        _show_trend(found)
    else:
        _show_report(found)


def _show_report(found: dict[str, Any]) -> None:
    print(f"{found['id']} {found['tenant']}/{found['table']}: {found['state']}")
    rows = [
        (rule["name"], rule["verdict"], rule["action"], rule.get("broken"), rule.get("of"), *_measured(rule))
        for rule in found["report"]["rules"]
    ]
    print_table(("rule", "verdict", "action", "broken", "of", "measured", "rows"), rows)
    if found["error"] is not None:
        print(f"{found['error']['message']} {found['error']['remedy']}".rstrip())


def _measured(rule: dict[str, Any]) -> tuple[str, str]:
    """What was measured, and the first rows that broke the rule."""
    samples = rule.get("samples", [])
    rows = ", ".join(map(str, samples[:SHOWN_SAMPLES])) + (" …" if len(samples) > SHOWN_SAMPLES else "")
    if rule.get("unknown"):
        return str(rule["unknown"]), rows
    usual = f", usually {rule['usual']:,}" if "usual" in rule else ""
    return f"{rule['measured']:,}{usual}" if "measured" in rule else "", rows


def _show_trend(found: dict[str, Any]) -> None:
    fields = ("name", "action", "imports", "broken", "latest_percent", "mean_percent", "goes")
    headers = ("rule", "action", "imports", "broken in", "latest %", "mean %", "goes")
    print_table(headers, [tuple(rule[field] for field in fields) for rule in found["rules"]])
    print()
    print_table(
        ("import", "state", "ended", "read", "rejected", "broken rules"), [_past(each) for each in found["items"]]
    )


def _past(item: dict[str, Any]) -> tuple[object, ...]:
    rules = (item["report"] or {"rules": []})["rules"]
    broken = ", ".join(rule["name"] for rule in rules if rule["verdict"] == "broken")
    return item["import"], item["state"], item["ended_at"], item["rows"]["read"], item["rows"]["rejected"], broken


@app.command("release")
def release(session: CommandSession, import_id: ImportId, no_wait: NoWait = False) -> None:
    """Let a held import end as if its rules had been kept."""
    document = session.platform.imports.release(import_id)
    if not no_wait:
        document = session.platform.imports.wait(import_id)
    answer(session, document, ledger_line(document))
    raise typer.Exit(EXIT_FAILED if document["state"] in ("failed", "cancelled") else 0)
