"""The end of an import, for sinks that tell their readers what is complete.

Written before the end is asked for, so that no import ends without it; written again, it says the same."""

from sqlalchemy import Connection, select

from millrace.exchange.ends import EndBox, ImportEnded
from millrace.model.imports import ALTER, TRUNCATE, Import
from millrace.model.table import Definition
from millrace.sink.registry import has_ability
from millrace.store import tables as t


def mark_end(connection: Connection, imp: Import, definition: Definition, box: EndBox) -> None:
    """Says which chunks of the import hold rows. Readers do not wait for a change of the table itself."""
    takers = any(has_ability(target.kind, "takes_ends") for target in definition.table.targets)
    if imp.kind in (TRUNCATE, ALTER) or not takers:
        return
    holding = select(t.chunks.c.number).where(t.chunks.c.import_id == imp.id, t.chunks.c.accepted > 0)
    numbers = tuple(connection.execute(holding.order_by(t.chunks.c.number)).scalars())
    box.put(ImportEnded(imp.id, imp.definition, imp.first_version + max(imp.versions - 1, 0), numbers))
