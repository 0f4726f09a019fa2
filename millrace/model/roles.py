"""The roles of tokens, from the least to the most. Each role includes the ones before it."""

from millrace.model.errors import Invalid

VIEWER, READER, WRITER, ADMIN, OPERATOR = "viewer", "reader", "writer", "admin", "operator"
ROLES = (VIEWER, READER, WRITER, ADMIN, OPERATOR)
# Only these can be limited to some tables. The other roles concern the whole tenant.
LIMITABLE = (VIEWER, READER, WRITER)


def may(role: str, least: str) -> bool:
    """Whether a role is at least another."""
    return role in ROLES and ROLES.index(role) >= ROLES.index(least)


def checked_role(role: str | None, tenant: str | None, tables: tuple[str, ...] | None) -> str:
    """The role of a new token. The default is the most powerful role that is possible there."""
    role = (OPERATOR if tenant is None else ADMIN) if role is None else role
    if role not in ROLES:
        raise Invalid(f"{role!r:.40} is not a role.", remedy=f"Choose one of {', '.join(ROLES)}.", code="bad_role")
    if role == ADMIN and tenant is None:
        raise Invalid("An admin is one of a tenant.", remedy="Name the tenant, or make an operator.", code="bad_role")
    if role == OPERATOR and tenant is not None:
        raise Invalid("An operator is of no tenant.", remedy="Name no tenant, or make an admin.", code="bad_role")
    if tables is not None and (tenant is None or role not in LIMITABLE):
        raise Invalid(
            f"A token of the role {role} cannot be limited to tables.",
            remedy=f"Give it a tenant and one of the roles {', '.join(LIMITABLE)}.",
            code="bad_role",
        )
    return role
