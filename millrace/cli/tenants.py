"""Commands about tenants as a whole: list, delete after a confirmation, restore, export as documents; and their schemas."""

import json
import sys
from pathlib import Path
from typing import Any

import typer

from millrace.cli.printing import print_json, print_table
from millrace.cli.session import EXIT_FAILED, Session
from millrace.cli.yaml_text import to_yaml
from millrace.client import Millrace


def show(session: Session) -> None:
    with Millrace.from_home(session.home) as connection:
        found = connection.tenants.list()
    if session.json:
        for tenant in found:
            print_json(tenant)
        return
    rows = [(one["name"], one["revision"], one.get("restorable_until") or "") for one in found]
    print_table(("tenant", "revision", "deleted, restorable until"), rows)


def delete(session: Session, tenant: str, confirm: str | None, grace_days: int) -> int:
    if confirm is None and sys.stdin.isatty():
        confirm = typer.prompt(f"Type {tenant} to delete it")
    if confirm != tenant:
        print(f"Not deleted: --confirm {tenant} is missing.", file=sys.stderr)
        return EXIT_FAILED
    with Millrace.from_home(session.home) as connection:
        answer = connection.tenants.delete(tenant, confirm=confirm, grace_days=grace_days)
    if session.json:
        print_json(answer)
    else:
        print(f"tenant {tenant} deleted; it can be restored until {answer['restorable_until']}")
    return 0


def erase(session: Session, tenant: str, confirm: str | None, now: bool, wait: float) -> int:
    if confirm is None and sys.stdin.isatty():
        confirm = typer.prompt(f"Type {tenant} to erase it for good")
    if confirm != tenant:
        print(f"Not erased: --confirm {tenant} is missing.", file=sys.stderr)
        return EXIT_FAILED
    with Millrace.from_home(session.home) as connection:
        receipt = connection.tenants.erase(tenant, confirm=confirm, now=now, wait=wait)
    print_json(receipt) if session.json else print(to_yaml(receipt), end="")
    return 0


def restore(session: Session, tenant: str) -> None:
    with Millrace.from_home(session.home) as connection:
        answer = connection.tenants.restore(tenant)
    if session.json:
        print_json(answer)
    else:
        print(f"tenant {tenant} restored" if answer["changed"] else f"tenant {tenant} was not deleted")


def export(session: Session, tenant: str, out: Path | None) -> None:
    with Millrace.from_home(session.home) as connection:
        found = connection.tenants.export(tenant)
    documents = {"agreement": found["agreement"], **{f"table-{one['table']}": one for one in found["tables"]}}
    if session.json:
        for document in documents.values():
            print_json(document)
    elif out is None:
        print(to_yaml(*documents.values()), end="")
    else:
        _write(out, documents)


def _write(out: Path, documents: dict[str, dict[str, Any]]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, document in documents.items():
        path = out / f"{name}.yaml"
        path.write_text(to_yaml(document), encoding="utf-8")
        print(path)


def schema(name: str) -> None:
    # The sinks' modules would slow down every other command.
    from millrace.sink.json_schemas import schema_named  # noqa: PLC0415

    print(json.dumps(schema_named(name), indent=2))
