"""Which tenant a command is about: the one named, else the only one the token can see."""

from millrace.client import Millrace
from millrace.model.errors import Invalid


def of_tenant(connection: Millrace, tenant: str | None) -> str:
    if tenant is not None:
        return tenant
    names = [str(each["name"]) for each in connection.tenants.list()]
    if len(names) != 1:
        known = ", ".join(names[:20]) or "none"
        raise Invalid(f"It is not clear which tenant is meant: {known}.", remedy="Name one with --tenant.")
    return names[0]
