"""The `webhook` commands: add, list, remove, test, rotate, pause, resume. A secret is printed once, when it is made."""

import sys

from millrace.cli.printing import print_json, print_table
from millrace.cli.session import EXIT_FAILED, Session
from millrace.cli.tenancy import of_tenant
from millrace.client import Millrace
from millrace.client.documents import SubscriptionDocument

HEADERS = ("webhook", "url", "types", "order", "on", "delivered", "given up", "waiting", "lag s", "last error")


def add(session: Session, name: str, url: str, tenant: str | None, types: list[str], order: str) -> None:
    with Millrace.from_home(session.home) as connection:
        made = connection.webhooks.add(of_tenant(connection, tenant), name, url, types=types, order=order)
    _show_secret(session, made)


def rotate(session: Session, name: str, tenant: str | None, overlap_seconds: float) -> None:
    with Millrace.from_home(session.home) as connection:
        made = connection.webhooks.rotate(of_tenant(connection, tenant), name, overlap_seconds=overlap_seconds)
    _show_secret(session, made)


def list_(session: Session, tenant: str | None) -> None:
    with Millrace.from_home(session.home) as connection:
        found = connection.webhooks.list(of_tenant(connection, tenant))
    if session.json:
        for each in found:
            print_json(each)
    else:
        print_table(HEADERS, [_row(each) for each in found])


def remove(session: Session, name: str, tenant: str | None) -> None:
    with Millrace.from_home(session.home) as connection:
        connection.webhooks.remove(of_tenant(connection, tenant), name)
    if session.json:
        print_json({"name": name, "removed": True})
    else:
        print(f"webhook {name} removed")


def switch(session: Session, name: str, tenant: str | None, *, enabled: bool) -> None:
    with Millrace.from_home(session.home) as connection:
        changed = connection.webhooks.change(of_tenant(connection, tenant), name, enabled=enabled)
    if session.json:
        print_json(changed)
    else:
        print(f"webhook {name} {'resumed' if enabled else 'paused'}")


def test(session: Session, name: str, tenant: str | None) -> int:
    with Millrace.from_home(session.home) as connection:
        tried = connection.webhooks.test(of_tenant(connection, tenant), name)
    if session.json:
        print_json(tried)
    elif tried["error"] is None:
        print(f"webhook {name} answered {tried['status']} in {tried['seconds']:.3f} s")
    else:
        print(f"webhook {name}: {tried['error']['message']}", file=sys.stderr)
    return 0 if tried["delivered"] else EXIT_FAILED


def _show_secret(session: Session, made: SubscriptionDocument) -> None:
    if session.json:
        print_json(made)
        return
    print(made.get("secret"))
    print("This secret signs every event. It is shown this once.", file=sys.stderr)


def _row(each: SubscriptionDocument) -> tuple[object, ...]:
    error = (each["last_error"] or {}).get("message", "")
    lag = each["lag"]
    where = (each["name"], each["url"], " ".join(each["types"]), each["order"], each["enabled"])
    return (*where, each["delivered"], each["given_up"], lag["events"], lag["seconds"], error)
