"""The contents of one commit: staged files with their definitions, a definition to prepare the table for, a version to
truncate it at, and imports that become visible.

The files of atomic imports wait beside the table until then. Each has a small record, named by its content, so keeping the
same file again changes nothing. Readers ignore the folder."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import orjson

from millrace.lake.sidecar import StagedFile
from millrace.lake.state import NO_FLOOR
from millrace.lake.store import Store
from millrace.model.errors import Corrupt
from millrace.model.table import Definition

Definitions = Callable[[str], Definition]
"""A fingerprint in, its definition out."""
FOLDER = "_millrace/held"


@dataclass(frozen=True, slots=True)
class DefinedFile:
    """A staged file and the definition that its rows were written under; None for a table without definitions."""

    file: StagedFile
    definition: Definition | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """An atomic import whose files become visible together, and the version of that order."""

    import_id: str
    version: int

    @property
    def transaction_id(self) -> str:
        return f"publish/{self.import_id}"


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Rows up to version `floor` are removed, and late rows at or below it are dropped. The table takes the shape of
    `definition` if it is newer than the table's own."""

    files: tuple[DefinedFile, ...] = ()
    floor: int = NO_FLOOR
    definition: Definition | None = None
    publications: tuple[Publication, ...] = ()


def keep_unpublished(store: Store, import_id: str, delivery: DefinedFile) -> None:
    definition = delivery.definition.fingerprint if delivery.definition else None
    record = {"definition": definition, "file": delivery.file.to_dict()}
    body = orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
    digest = hashlib.blake2b(body, digest_size=12).hexdigest()
    store.write(f"{FOLDER}/{import_id}.{digest}.json", body)


def unpublished_files(store: Store, import_id: str, definitions: Definitions) -> list[DefinedFile]:
    """The files of an import, in any order."""
    return [
        DefinedFile(file, None if fingerprint is None else definitions(fingerprint))
        for _, fingerprint, file in _records(store, import_id)
    ]


def forget_published(store: Store, import_id: str) -> None:
    """Deletes the records of an import. The files themselves belong to the table, or the vacuum deletes them."""
    for name, _, _ in _records(store, import_id):
        store.delete(name)


def forget_settled(store: Store, safe_version: int) -> None:
    """Forgets imports that are over and were never published: none at or below the safe version is still under way."""
    for name, _, file in _records(store):
        if file.chunks and max(chunk.version for chunk in file.chunks) <= safe_version:
            store.delete(name)


def unpublished_names(store: Store) -> set[str]:
    """The names of the files of all imports that await publication."""
    files = [file for _, _, file in _records(store)]
    return {name for file in files for name in file.parts}


def _records(store: Store, import_id: str | None = None) -> Iterator[tuple[str, str | None, StagedFile]]:
    for entry in store.list(FOLDER):
        if import_id is None or entry.name.removeprefix(f"{FOLDER}/").rsplit(".", 2)[0] == import_id:
            try:
                record = orjson.loads(store.read(entry.name))
                definition, file = record["definition"], StagedFile.from_dict(record["file"])
            except (ValueError, LookupError, TypeError) as error:
                raise Corrupt(
                    f"{store.path(entry.name)}, which names rows that await the end of their import, is damaged.",
                    remedy="Restore it from a copy. Without one, delete it and import these rows again.",
                ) from error
            yield entry.name, definition, file
