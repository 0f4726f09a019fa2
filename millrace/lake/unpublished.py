"""Files of atomic imports that await publication: beside the table there is one small record for each.

A record is named by its content, so keeping the same file again changes nothing. Readers ignore the folder."""

import hashlib
from collections.abc import Iterator

import orjson

from millrace.lake.batch import DefinedFile, Definitions
from millrace.lake.sidecar import StagedFile
from millrace.lake.store import Store

FOLDER = "_millrace/held"


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
            record = orjson.loads(store.read(entry.name))
            yield entry.name, record["definition"], StagedFile.from_dict(record["file"])
