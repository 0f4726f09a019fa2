"""Commands about a tenant's key: show, rotate, destroy after a confirmation."""

import sys
from typing import Any

import typer

from millrace.cli.printing import print_json
from millrace.cli.session import EXIT_FAILED, Session
from millrace.client import Millrace


def show(session: Session, tenant: str) -> None:
    with Millrace.from_home(session.home) as connection:
        found = connection.keys.show(tenant)
    if session.json:
        print_json(found)
        return
    print(f"{tenant}: {_named(found['key'])}; it wraps {found['data_keys']:,} data keys")
    print("what comes in is sealed" if found["encryption"] else "the agreement does not ask for encryption")


def rotate(session: Session, tenant: str) -> None:
    with Millrace.from_home(session.home) as connection:
        done = connection.keys.rotate(tenant)
    if session.json:
        print_json(done)
    else:
        print(f"{tenant}: {_named(done['key'])}; {done['rewrapped']:,} data keys wrapped anew")


def destroy(session: Session, tenant: str, confirm: str | None) -> int:
    if confirm is None and sys.stdin.isatty():
        confirm = typer.prompt(f"Nobody can read again what it sealed. Type {tenant} to destroy its key")
    if confirm != tenant:
        print(f"Not destroyed: --confirm {tenant} is missing.", file=sys.stderr)
        return EXIT_FAILED
    with Millrace.from_home(session.home) as connection:
        done = connection.keys.destroy(tenant, confirm=confirm)
    if session.json:
        print_json(done)
    else:
        print(f"{tenant}: {_named(done['key'])} destroyed, certain {done['destroyed']}")
    return 0


def _named(key: dict[str, Any] | None) -> str:
    return "no key yet" if key is None else f"key {key['name']} of the keeper {key['keeper']}, version {key['version']}"
