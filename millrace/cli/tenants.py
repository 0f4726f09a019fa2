"""The group `tenant`: tenants as a whole."""

from typing import Annotated

import typer

from millrace.cli import keys
from millrace.cli.arguments import Confirm, TenantName, refuse_unconfirmed
from millrace.cli.printing import answer, answer_all, print_json
from millrace.cli.session import CommandSession

app = typer.Typer(help="List tenants, delete them, bring them back.")
app.add_typer(keys.app, name="key")


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
