"""Reads declarations as routes receive them: adds what the tenant's agreement says, and returns warnings."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from millrace.api.declarations.default_app import DefaultApp
from millrace.api.documents.tables import declared_table
from millrace.auth.tokens import Caller
from millrace.declare.table import parse_table
from millrace.model.agreement import Agreement, parse_agreement
from millrace.model.agreement_warnings import refuse_absurd, warnings_without_app
from millrace.model.column_names import refuse_unsafe
from millrace.model.columns import parse_columns
from millrace.model.declared_documents import target_document
from millrace.model.documents import DeclarationWarning
from millrace.model.errors import Forbidden, Invalid, Refused
from millrace.model.names import checked_name
from millrace.model.roles import OPERATOR
from millrace.model.sinks import CORE_STORE_KIND, DELTA_KIND, REMOTE_DELTA_KIND
from millrace.model.table import TableDeclaration
from millrace.model.table_warnings import table_warnings
from millrace.sink.context import SinkContext
from millrace.sink.delta.places import placed
from millrace.sink.registry import refuse_foreign_in, refuse_unable
from millrace.store.agreements import agreement_of


def read_agreement(
    context: SinkContext, default_app: DefaultApp, tenant: str, document: Mapping[str, Any]
) -> tuple[Agreement, tuple[DeclarationWarning, ...]]:
    agreement, warnings = parse_agreement({"client": tenant, **document})
    if agreement.tenant != checked_name("tenant", tenant):
        raise Invalid(
            f"The agreement is {agreement.tenant!r}'s, not {tenant!r}'s.", remedy="Send it to its own tenant."
        )
    refuse_absurd(agreement, document)
    refuse_foreign_in(agreement.sinks, context.for_tenant(tenant))
    return agreement, (*warnings, *(() if default_app.exists else warnings_without_app(agreement)))


def refuse_local_command(caller: Caller, agreement: Agreement) -> None:
    """A command runs on the platform's own machine, so only an operator may choose it."""
    if any(one.app and one.app.runs_here for one in agreement.by_app()) and caller.role != OPERATOR:
        raise Refused(
            "app.command is for the platform's operator to declare.",
            remedy="Name an image, or ask the operator to apply the agreement.",
            code="operators_only",
        )


def refuse_changed_agreement(tenant: str, changes: list[str], *, is_new: bool) -> None:
    """For a caller who is not an operator."""
    if is_new:
        raise Forbidden(f"Only an operator declares a tenant, and {tenant!r} is none yet.", remedy="Ask the operator.")
    if changes:
        more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
        raise Forbidden(
            f"Only an operator changes an agreement. This one changes {changes[0]}{more}.",
            remedy="Send the agreement as it is (`millrace export`), or ask the operator to apply it.",
        )


def refuse_unconfirmed(what: str, tenant: str, confirm: str) -> None:
    """For what cannot be undone: the caller repeats the tenant's name."""
    if confirm != tenant:
        remedy = "Send confirm with the tenant's name."
        raise Invalid(f"{what} {tenant!r} is not confirmed.", remedy=remedy, code="unconfirmed")


def read_table(
    context: SinkContext, connection: Connection, tenant: str, table: str, document: Mapping[str, Any]
) -> tuple[TableDeclaration, tuple[DeclarationWarning, ...]]:
    """A table that names no sinks has those of its tenant's agreement."""
    agreement = None if "sinks" in document else agreement_of(connection, tenant)
    if agreement is not None and agreement.sinks:
        document = {**document, "sinks": [target_document(target) for target in agreement.sinks]}
    elif "sinks" not in document and context.has_core_store:
        document = {**document, "sinks": [CORE_STORE_KIND]}
    before = declared_table(connection, tenant, table)
    declaration = placed(context, parse_table(document), before.table.targets if before else ())
    if any(target.kind in (DELTA_KIND, REMOTE_DELTA_KIND) for target in declaration.targets):
        refuse_unsafe(parse_columns(declaration.schema), parse_columns(before.table.schema) if before else ())
    elif declaration.change_feed:
        raise Invalid("The table has a change feed and no Delta sink.", remedy="Add the sink delta, or leave it out.")
    refuse_unable(declaration, context.for_tenant(tenant))
    if declaration.name != checked_name("table", table):
        raise Invalid(
            f"The declaration is of {declaration.name!r}, not of {table!r}.", remedy="Send it to its own table."
        )
    return declaration, table_warnings(declaration, document)
