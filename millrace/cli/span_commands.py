"""Commands of spans and webhooks: each command's name, arguments and help."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.lazy import LazyModule

if TYPE_CHECKING:
    from millrace.cli import hooking, spanning
else:
    hooking, spanning = LazyModule("millrace.cli.hooking"), LazyModule("millrace.cli.spanning")

EVERYWHERE = "With every command: --home FOLDER, --json (for programs), --debug (tracebacks)."
SpanName = Annotated[str, typer.Argument(metavar="SPAN", help="Levels joined by '/'.", show_default=False)]
HookName = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Tenant = Annotated[str | None, typer.Option(help="Whose. Default: the only one the token can see.", show_default=False)]


def register(app: typer.Typer) -> None:
    groups = {
        "span": ("Group imports, and hear when all of them are done.", SPAN_COMMANDS),
        "webhook": ("Have events sent to an address of yours.", WEBHOOK_COMMANDS),
    }
    for group, (text, commands) in groups.items():
        made = typer.Typer(help=text, no_args_is_help=True, epilog=EVERYWHERE, rich_markup_mode=None)
        for name, function in commands.items():
            made.command(name, epilog=EVERYWHERE)(function)
        app.add_typer(made, name=group)


def span_begin(
    context: typer.Context,
    name: SpanName,
    tenant: Tenant = None,
    lease: Annotated[
        int | None, typer.Option(help="Seconds it may lie unused before it is aborted.", min=1, show_default=False)
    ] = None,
) -> None:
    """Open a span, and every level above it.

    Imports join it with `millrace import … --span`."""
    spanning.begin(context.obj, name, tenant, lease)


def span_end(
    context: typer.Context,
    name: SpanName,
    tenant: Tenant = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until everything in it is durable; exit 1 if it was aborted.")
    ] = False,
) -> None:
    """Close a span: nothing more joins it, and it ends when all of it is durable."""
    raise typer.Exit(spanning.end(context.obj, name, tenant, wait=wait))


def span_abort(
    context: typer.Context,
    name: SpanName,
    tenant: Tenant = None,
    reason: Annotated[str, typer.Option(help="For those who listen.", show_default=False)] = "",
) -> None:
    """Give a span up, and those above it. Its imports go on."""
    spanning.abort(context.obj, name, tenant, reason)


def span_touch(context: typer.Context, name: SpanName, tenant: Tenant = None) -> None:
    """Renew the lease of a span that nothing happens in for long."""
    spanning.touch(context.obj, name, tenant)


def span_show(context: typer.Context, name: SpanName, tenant: Tenant = None) -> None:
    """Show one span closely."""
    spanning.show(context.obj, name, tenant)


def span_list(
    context: typer.Context,
    tenant: Tenant = None,
    state: Annotated[str | None, typer.Option(help="open, ending, ended or aborted.", show_default=False)] = None,
    below: Annotated[str | None, typer.Option(help="Only this span and those below it.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(help="How many of the latest.", min=1, max=1000)] = 100,
) -> None:
    """List spans, the latest first."""
    spanning.list_(context.obj, tenant, state, below, limit)


def span_wait(
    context: typer.Context,
    name: SpanName,
    tenant: Tenant = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds at most.", min=0, show_default=False)] = None,
) -> None:
    """Wait until a span is over: exit 0 if it has ended, 1 if it was aborted."""
    raise typer.Exit(spanning.wait(context.obj, name, tenant, timeout))


def webhook_add(
    context: typer.Context,
    name: HookName,
    url: Annotated[str, typer.Argument(metavar="URL", show_default=False)],
    tenant: Tenant = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Such as span.ended or import.*; repeatable.", show_default=False)
    ] = None,
    as_they_come: Annotated[
        bool, typer.Option("--as-they-come", help="Several at once, without waiting for one that fails.")
    ] = False,
) -> None:
    """Send events from now on, signed; prints the secret, this once."""
    order = "as_they_come" if as_they_come else "in_order"
    hooking.add(context.obj, name, url, tenant, type_ or ["*"], order)


def webhook_list(context: typer.Context, tenant: Tenant = None) -> None:
    """List webhooks, and how they are doing."""
    hooking.list_(context.obj, tenant)


def webhook_remove(context: typer.Context, name: HookName, tenant: Tenant = None) -> None:
    """Send it nothing more; what was waiting for it is dropped."""
    hooking.remove(context.obj, name, tenant)


def webhook_test(context: typer.Context, name: HookName, tenant: Tenant = None) -> None:
    """Send one event now; exit 1 if it is not taken."""
    raise typer.Exit(hooking.test(context.obj, name, tenant))


def webhook_rotate(
    context: typer.Context,
    name: HookName,
    tenant: Tenant = None,
    overlap: Annotated[float, typer.Option(help="Seconds the old secret signs as well.", min=0)] = 86_400,
) -> None:
    """Make a new secret; prints it, this once."""
    hooking.rotate(context.obj, name, tenant, overlap)


def webhook_pause(context: typer.Context, name: HookName, tenant: Tenant = None) -> None:
    """Hold its events back."""
    hooking.switch(context.obj, name, tenant, enabled=False)


def webhook_resume(context: typer.Context, name: HookName, tenant: Tenant = None) -> None:
    """Send again, what was held back first."""
    hooking.switch(context.obj, name, tenant, enabled=True)


SPAN_COMMANDS: dict[str, Callable[..., None]] = {
    "begin": span_begin,
    "end": span_end,
    "abort": span_abort,
    "touch": span_touch,
    "show": span_show,
    "list": span_list,
    "wait": span_wait,
}
WEBHOOK_COMMANDS: dict[str, Callable[..., None]] = {
    "add": webhook_add,
    "list": webhook_list,
    "remove": webhook_remove,
    "test": webhook_test,
    "rotate": webhook_rotate,
    "pause": webhook_pause,
    "resume": webhook_resume,
}
