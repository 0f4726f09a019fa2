"""Notices for sinks that tell their readers what is complete: an import has ended; a table's old rows may go.

The accountant writes the end of an import before it asks the controller to end it. Retention writes the age of rows. The
couriers of the data plane take each notice into the queues of the table's sinks. If a notice is lost, a file sink does not
mark that import complete, or keeps old rows for a day longer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from millrace.atomic import replace_file
from millrace.exchange.home import Home


@dataclass(frozen=True, slots=True)
class ImportEnded:
    """`chunks`: the numbers of those that hold accepted rows. `version`: the import's last."""

    import_id: str
    definition: str
    version: int
    chunks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RowsAged:
    """Rows at or below `version` of the table with this definition may go."""

    definition: str
    version: int


Notice = ImportEnded | RowsAged


@dataclass(frozen=True, slots=True)
class EndBox:
    home: Home

    def put(self, notice: Notice) -> None:
        """Put again, a notice stays the same one."""
        replace_file(self.home.ends / f"{_name(notice)}.json", orjson.dumps(_document(notice)))

    def take(self) -> Iterator[Notice]:
        """Each notice is gone when the next one is asked for: a reader that fails finds it again."""
        for path in sorted(self.home.ends.glob("*.json")):
            yield _notice(orjson.loads(path.read_bytes()))
            path.unlink(missing_ok=True)


def _name(notice: Notice) -> str:
    # With its version: one that is put while an older one is taken is a file of its own.
    return notice.import_id if isinstance(notice, ImportEnded) else f"age-{notice.definition}.{notice.version}"


def _document(notice: Notice) -> dict[str, Any]:
    if isinstance(notice, RowsAged):
        return {"definition": notice.definition, "age": notice.version}
    ended = {"import": notice.import_id, "definition": notice.definition, "version": notice.version}
    return {**ended, "chunks": notice.chunks}


def _notice(found: dict[str, Any]) -> Notice:
    if "age" in found:
        return RowsAged(found["definition"], found["age"])
    return ImportEnded(found["import"], found["definition"], found["version"], tuple(found["chunks"]))
