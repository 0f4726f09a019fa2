"""Commands about quality: the report of an import, the trend of a table, and the release of an import that is held."""

from typing import Any

from millrace.cli.printing import ledger_line, print_json, print_table
from millrace.cli.session import EXIT_FAILED, Session
from millrace.client import Millrace


def show(session: Session, target: str, last: int) -> None:
    tenant, slash, table = target.partition("/")
    with Millrace.from_home(session.home) as connection:
        found = connection.quality.of_table(tenant, table, last=last) if slash else connection.quality.of_import(target)
    if session.json:
        print_json(found)
    elif slash:
        _show_trend(found)
    else:
        _show_report(found)


def _show_report(found: dict[str, Any]) -> None:
    print(f"{found['id']} {found['tenant']}/{found['table']}: {found['state']}")
    rows = [
        (one["name"], one["verdict"], one["action"], one.get("broken"), one.get("of"), _measured(one), _some(one))
        for one in found["report"]["rules"]
    ]
    print_table(("rule", "verdict", "action", "broken", "of", "measured", "rows"), rows)
    if found["error"] is not None:
        print(f"{found['error']['message']} {found['error']['remedy']}".rstrip())


def _measured(rule: dict[str, Any]) -> str:
    if rule.get("unknown"):
        return str(rule["unknown"])
    usual = f", usually {rule['usual']:,}" if "usual" in rule else ""
    return f"{rule['measured']:,}{usual}" if "measured" in rule else ""


def _some(rule: dict[str, Any]) -> str:
    samples = rule.get("samples", [])
    return ", ".join(str(row) for row in samples[:5]) + (" …" if len(samples) > 5 else "")


def _show_trend(found: dict[str, Any]) -> None:
    rows = [
        (
            one["name"],
            one["action"],
            one["imports"],
            one["broken"],
            one["latest_percent"],
            one["mean_percent"],
            one["goes"],
        )
        for one in found["rules"]
    ]
    print_table(("rule", "action", "imports", "broken in", "latest %", "mean %", "goes"), rows)
    past = [(one["import"], one["state"], one["ended_at"], *_counts(one), _broken(one)) for one in found["items"]]
    print()
    print_table(("import", "state", "ended", "read", "rejected", "broken rules"), past)


def _counts(item: dict[str, Any]) -> tuple[int, int]:
    return item["rows"]["read"], item["rows"]["rejected"]


def _broken(item: dict[str, Any]) -> str:
    rules = (item["report"] or {"rules": []})["rules"]
    return ", ".join(rule["name"] for rule in rules if rule["verdict"] == "broken")


def release_import(session: Session, import_id: str, wait: bool) -> int:
    with Millrace.from_home(session.home) as connection:
        document = connection.imports.release(import_id)
        if wait:
            document = connection.imports.wait(import_id)
    if session.json:
        print_json(document)
    else:
        print(ledger_line(document))
    return EXIT_FAILED if document["state"] in ("failed", "cancelled") else 0
