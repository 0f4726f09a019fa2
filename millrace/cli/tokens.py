"""The group `token`: access tokens."""

from typing import Annotated, Any

import typer

from millrace.cli.printing import answer, answer_all
from millrace.cli.session import CommandSession
from millrace.model.roles import ROLES

app = typer.Typer(help="Make, list and revoke access tokens.")


@app.command("create")
def create(
    session: CommandSession,
    name: Annotated[str, typer.Argument(help="To know it by.")],
    tenant: Annotated[str | None, typer.Option(help="What it may see. Default: everything.")] = None,
    role: Annotated[str | None, typer.Option(help=f"{', '.join(ROLES)}. Default: all that is possible there.")] = None,
    table: Annotated[list[str] | None, typer.Option(help="Limits it to this table; may be repeated.")] = None,
    days: Annotated[float | None, typer.Option(help="After so many days it expires. Default: 90.", min=0)] = None,
) -> None:
    """Make a token; it is shown this once."""
    made = session.platform.tokens.create(name, tenant=tenant, role=role, tables=table or None, days=days)
    answer(session, made, made["token"])


@app.command("list")
def list_(
    session: CommandSession,
    tenant: Annotated[str | None, typer.Option(help="Only those of this tenant.")] = None,
) -> None:
    """List tokens with their role, expiry and last use."""
    found = session.platform.tokens.list(tenant)
    answer_all(session, ("name", "tenant", "role", "tables", "expires", "last used"), found, _row)


def _row(token: dict[str, Any]) -> tuple[object, ...]:
    tables = ", ".join(token["tables"] or ()) or "(all)"
    times = (token["expires_at"] or "never", token["last_used_at"] or "never")
    return token["name"], token["tenant"] or "(all)", token["role"], tables, *times


@app.command("delete")
@app.command("revoke", hidden=True)
def delete(
    session: CommandSession,
    name: str,
    tenant: Annotated[
        str | None, typer.Option(help="Whose. Default: the tenant of your own token; an operator's: the platform.")
    ] = None,
) -> None:
    """Revoke a token, and those that were made with it."""
    gone = session.platform.tokens.delete(name, tenant)
    lines = (f"token {one['name']} of {one['tenant'] or 'the platform'} deleted" for one in gone["revoked"])
    answer(session, {**gone, "deleted": True}, "\n".join(lines))
