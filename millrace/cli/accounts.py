"""The `audit` command."""

from millrace.cli.printing import print_json, print_table
from millrace.cli.session import Session
from millrace.client import Millrace


def audit(session: Session, tenant: str | None, limit: int) -> None:
    with Millrace.from_home(session.home) as connection:
        found = connection.audit(tenant, limit=limit)
    if session.json:
        for entry in found:
            print_json(entry)
        return
    columns = ("at", "who", "role", "from", "tenant", "action", "subject", "outcome", "request")
    print_table(columns, [tuple(entry[name] or "" for name in columns) for entry in found])
