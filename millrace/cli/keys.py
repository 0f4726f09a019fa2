"""The group `tenant key`: the key that seals a tenant's rows."""

from typing import Any

import typer

from millrace.cli.arguments import Confirm, TenantName, refuse_unconfirmed
from millrace.cli.printing import answer
from millrace.cli.session import CommandSession

app = typer.Typer(help="Show, rotate or destroy the key that seals a tenant's rows on their way.")


@app.command("show")
def show(session: CommandSession, tenant: TenantName) -> None:
    """Who keeps the tenant's key, and its version."""
    found = session.platform.keys.show(tenant)
    sealed = "what comes in is sealed" if found["encryption"] else "the agreement does not ask for encryption"
    answer(session, found, f"{tenant}: {_named(found['key'])}; it wraps {found['data_keys']:,} data keys\n{sealed}")


@app.command("rotate")
def rotate(session: CommandSession, tenant: TenantName) -> None:
    """Make a new version and wrap every data key by it; no data is touched."""
    done = session.platform.keys.rotate(tenant)
    answer(session, done, f"{tenant}: {_named(done['key'])}; {done['rewrapped']:,} data keys wrapped anew")


@app.command("destroy")
def destroy(session: CommandSession, tenant: TenantName, confirm: Confirm = None) -> None:
    """Make unreadable, for good, what the key sealed: rejected rows, copies in Kafka, staged files."""
    warning = f"Nobody can read again what it sealed. Type {tenant} to destroy its key"
    refuse_unconfirmed(tenant, confirm, warning, "destroyed")
    done = session.platform.keys.destroy(tenant, confirm=tenant)
    answer(session, done, f"{tenant}: {_named(done['key'])} destroyed, certain {done['destroyed']}")


def _named(key: dict[str, Any] | None) -> str:
    return "no key yet" if key is None else f"key {key['name']} of the keeper {key['keeper']}, version {key['version']}"
