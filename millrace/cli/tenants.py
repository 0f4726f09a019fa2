"""The group `tenant`: tenants as a whole, and the keys that seal their rows."""

from typing import Annotated, Any

import typer

from millrace.cli.arguments import Confirm, TenantName, refuse_unconfirmed
from millrace.cli.printing import answer, answer_all, print_json
from millrace.cli.session import CommandSession

app = typer.Typer(help="List tenants, delete them, bring them back.")
key_app = typer.Typer(help="Show, rotate or destroy the key that seals a tenant's rows on their way.")
app.add_typer(key_app, name="key")


@app.command("list")
def list_(session: CommandSession) -> None:
    """List tenants with the revision of their agreement."""
    found = session.platform.tenants.list()
    headers = ("tenant", "revision", "deleted, restorable until")
    answer_all(session, headers, found, lambda each: (each["name"], each["revision"], each.get("restorable_until", "")))


@app.command("delete")
def delete(
    session: CommandSession,
    tenant: TenantName,
    confirm: Confirm = None,
    grace_days: Annotated[int, typer.Option(help="So long it can be restored.", min=0, max=365)] = 7,
) -> None:
    """Delete a tenant: it takes nothing new, and can be restored until its grace is over."""
    refuse_unconfirmed(tenant, confirm, f"Type {tenant} to delete it", "deleted")
    done = session.platform.tenants.delete(tenant, confirm=tenant, grace_days=grace_days)
    answer(session, done, f"tenant {tenant} deleted; it can be restored until {done['restorable_until']}")


@app.command("restore")
def restore(session: CommandSession, tenant: TenantName) -> None:
    """Bring a deleted tenant back."""
    done = session.platform.tenants.restore(tenant)
    answer(session, done, f"tenant {tenant} {'restored' if done['changed'] else 'was not deleted'}")


@app.command("erase")
def erase(
    session: CommandSession,
    tenant: TenantName,
    confirm: Confirm = None,
    now: Annotated[bool, typer.Option("--now", help="Although it could still be restored.")] = False,
    wait: Annotated[float, typer.Option(help="Seconds after which a sink that is away is given up.", min=0)] = 30.0,
) -> None:
    """Remove a deleted tenant everywhere, for good; prints a receipt."""
    from millrace.cli.yaml_text import to_yaml  # noqa: PLC0415

    refuse_unconfirmed(tenant, confirm, f"Type {tenant} to erase it for good", "erased")
    receipt = session.platform.tenants.erase(tenant, confirm=tenant, now=now, wait=wait)
    print_json(receipt) if session.json else print(to_yaml(receipt), end="")


@key_app.command("show")
def show_key(session: CommandSession, tenant: TenantName) -> None:
    """Who keeps the tenant's key, and its version."""
    found = session.platform.keys.show(tenant)
    sealed = "what comes in is sealed" if found["encryption"] else "the agreement does not ask for encryption"
    answer(session, found, f"{tenant}: {_key_named(found['key'])}; it wraps {found['data_keys']:,} data keys\n{sealed}")


@key_app.command("rotate")
def rotate_key(session: CommandSession, tenant: TenantName) -> None:
    """Make a new version and wrap every data key by it; no data is touched."""
    done = session.platform.keys.rotate(tenant)
    answer(session, done, f"{tenant}: {_key_named(done['key'])}; {done['rewrapped']:,} data keys wrapped anew")


@key_app.command("destroy")
def destroy_key(session: CommandSession, tenant: TenantName, confirm: Confirm = None) -> None:
    """Make unreadable, for good, what the key sealed: rejected rows, copies in Kafka, staged files."""
    warning = f"Nobody can read again what it sealed. Type {tenant} to destroy its key"
    refuse_unconfirmed(tenant, confirm, warning, "destroyed")
    done = session.platform.keys.destroy(tenant, confirm=tenant)
    answer(session, done, f"{tenant}: {_key_named(done['key'])} destroyed, certain {done['destroyed']}")


def _key_named(key: dict[str, Any] | None) -> str:
    return "no key yet" if key is None else f"key {key['name']} of the keeper {key['keeper']}, version {key['version']}"
