"""What a declaration changes, in words: compared with the table or the agreement that is declared now."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from millrace.api.documents.tables import declared_table
from millrace.model.change_words import describe, settings_changed
from millrace.model.changes import Change
from millrace.model.errors import Refused
from millrace.model.evolution import check
from millrace.model.table import Definition, TableDeclaration
from millrace.store import tables as t


def history_of(connection: Connection, definition: Definition) -> list[Definition]:
    """The definitions of the table's generation."""
    wanted = select(t.revisions.c.definition).where(
        t.revisions.c.tenant == definition.tenant,
        t.revisions.c.table_name == definition.table.name,
        t.revisions.c.generation == definition.generation,
    )
    return [Definition.from_json(row.encode()) for row in connection.execute(wanted).scalars()]


def changes_of(
    connection: Connection, tenant: str, declaration: TableDeclaration, *, new_generation: bool = False
) -> list[str]:
    """Nothing for a table that is new, and for a change that the log will refuse."""
    before = declared_table(connection, tenant, declaration.name)
    if before is None:
        return []
    if new_generation:
        return begins_anew(before, declaration)
    try:
        return words_of(check(before, history_of(connection, before), declaration), before, declaration)
    except Refused:
        return []


def begins_anew(before: Definition, declaration: TableDeclaration) -> list[str]:
    begins = f"begin generation {before.generation + 1}, without the rows of generation {before.generation}"
    return [begins, *settings_changed(before.table, declaration)]


def words_of(found: Sequence[Change], before: Definition, declaration: TableDeclaration) -> list[str]:
    lines = [*describe(found), *settings_changed(before.table, declaration)]
    return lines or ["words of the schema"]
