"""The `token` commands."""

from millrace.cli.printing import print_json, print_table
from millrace.cli.session import Session
from millrace.client import Millrace


def create(
    session: Session, name: str, tenant: str | None, role: str | None, tables: list[str] | None, days: float | None
) -> None:
    with Millrace.from_home(session.home) as connection:
        made = connection.tokens.create(name, tenant=tenant, role=role, tables=tables or None, days=days)
    if session.json:
        print_json(made)
    else:
        print(made["token"])


def show(session: Session, tenant: str | None) -> None:
    with Millrace.from_home(session.home) as connection:
        found = connection.tokens.list(tenant)
    if session.json:
        for token in found:
            print_json(token)
        return
    rows = [
        (
            token["name"],
            token["tenant"] or "(all)",
            token["role"],
            ", ".join(token["tables"] or ()) or "(all)",
            token["expires_at"] or "never",
            token["last_used_at"] or "never",
        )
        for token in found
    ]
    print_table(("name", "tenant", "role", "tables", "expires", "last used"), rows)


def delete(session: Session, name: str, tenant: str | None) -> None:
    with Millrace.from_home(session.home) as connection:
        connection.tokens.delete(name, tenant)
    if session.json:
        print_json({"name": name, "deleted": True})
    else:
        print(f"token {name} deleted")
