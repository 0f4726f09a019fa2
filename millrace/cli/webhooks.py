"""The group `webhook`. A secret is printed once, when it is made."""

import sys
from typing import Annotated

import typer

from millrace.cli.arguments import OfTenant, of_tenant
from millrace.cli.printing import answer, answer_all, print_json
from millrace.cli.session import EXIT_FAILED, CommandSession
from millrace.client.documents import SubscriptionDocument

HEADERS = ("webhook", "url", "types", "order", "on", "delivered", "given up", "waiting", "lag s", "last error")
LEAST = ("order", "given up", "lag s", "on", "types", "delivered")
HookName = Annotated[str, typer.Argument(metavar="NAME")]
app = typer.Typer(help="Have events sent to an address of yours.")


@app.command("add")
def add(
    session: CommandSession,
    name: HookName,
    url: Annotated[str, typer.Argument(metavar="URL")],
    tenant: OfTenant = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Such as span.ended or import.*; repeatable.")
    ] = None,
    as_they_come: Annotated[
        bool, typer.Option("--as-they-come", help="Several at once, without waiting for one that fails.")
    ] = False,
) -> None:
    """Send events from now on, signed; prints the secret, this once."""
    order = "as_they_come" if as_they_come else "in_order"
    made = session.platform.webhooks.add(of_tenant(session, tenant), name, url, types=type_ or ["*"], order=order)
    _show_secret(session, made)


@app.command("list")
def list_(session: CommandSession, tenant: OfTenant = None) -> None:
    """List webhooks, and how they are doing."""
    found = session.platform.webhooks.list(of_tenant(session, tenant))
    answer_all(session, HEADERS, found, _row, LEAST)


@app.command("remove")
def remove(session: CommandSession, name: HookName, tenant: OfTenant = None) -> None:
    """Send it nothing more; what was waiting for it is dropped."""
    session.platform.webhooks.remove(of_tenant(session, tenant), name)
    answer(session, {"name": name, "removed": True}, f"webhook {name} removed")


@app.command("test")
def send_test(session: CommandSession, name: HookName, tenant: OfTenant = None) -> None:
    """Send one event now; exit 1 if it is not taken."""
    tried = session.platform.webhooks.test(of_tenant(session, tenant), name)
    if session.json or tried["error"] is None:
        answer(session, tried, f"webhook {name} answered {tried['status']} in {tried['seconds']:.3f} s")
    else:
        print(f"webhook {name}: {tried['error']['message']}", file=sys.stderr)
    raise typer.Exit(0 if tried["delivered"] else EXIT_FAILED)


@app.command("rotate")
def rotate(
    session: CommandSession,
    name: HookName,
    tenant: OfTenant = None,
    overlap: Annotated[float, typer.Option(help="Seconds the old secret signs as well.", min=0)] = 86_400,
) -> None:
    """Make a new secret; prints it, this once."""
    made = session.platform.webhooks.rotate(of_tenant(session, tenant), name, overlap_seconds=overlap)
    _show_secret(session, made)


@app.command("pause")
def pause(session: CommandSession, name: HookName, tenant: OfTenant = None) -> None:
    """Hold its events back."""
    _switch(session, name, tenant, enabled=False)


@app.command("resume")
def resume(session: CommandSession, name: HookName, tenant: OfTenant = None) -> None:
    """Send again, what was held back first."""
    _switch(session, name, tenant, enabled=True)


def _switch(session: CommandSession, name: str, tenant: str | None, *, enabled: bool) -> None:
    changed = session.platform.webhooks.change(of_tenant(session, tenant), name, enabled=enabled)
    answer(session, changed, f"webhook {name} {'resumed' if enabled else 'paused'}")


def _show_secret(session: CommandSession, made: SubscriptionDocument) -> None:
    if session.json:
        return print_json(made)
    print(made.get("secret"))
    print("This secret signs every event. It is shown this once.", file=sys.stderr)


def _row(each: SubscriptionDocument) -> tuple[object, ...]:
    error = (each["last_error"] or {}).get("message", "")
    lag = each["lag"]
    where = (each["name"], each["url"], " ".join(each["types"]), each["order"], each["enabled"])
    return (*where, each["delivered"], each["given_up"], lag["events"], lag["seconds"], error)
