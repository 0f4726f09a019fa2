"""The `token` commands."""

from millrace.cli.printing import print_json, print_table
from millrace.cli.session import Session
from millrace.client import Millrace


def create(session: Session, name: str, tenant: str | None) -> None:
    with Millrace.from_home(session.home) as connection:
        token = connection.create_token(name, tenant=tenant)
    if session.json:
        print_json({"name": name, "tenant": tenant, "token": token})
    else:
        print(token)


def show(session: Session) -> None:
    with Millrace.from_home(session.home) as connection:
        found = connection.tokens()
    if session.json:
        for token in found:
            print_json(token)
    else:
        print_table(("name", "tenant"), [(token["name"], token.get("tenant") or "(all)") for token in found])


def delete(session: Session, name: str) -> None:
    with Millrace.from_home(session.home) as connection:
        connection.delete_token(name)
    if session.json:
        print_json({"name": name, "deleted": True})
    else:
        print(f"token {name} deleted")
