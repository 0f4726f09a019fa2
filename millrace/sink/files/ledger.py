"""What a table's files hold: the parts of each import, and a manifest when the import is complete.

A part is some chunks of one import. Its record is written before its files. A chunk is stored if a record names it and every
file of that record is whole. So chunks that come twice, or in other groups, are written once."""

import hashlib
import io
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from millrace.model.names import checked_name
from millrace.model.sinks import Fault, SinkFailed
from millrace.sink.files.store import FileStore

# Readers of folders ignore names that begin with an underscore.
OWN, MANIFESTS = "_millrace", "_manifests"
IMPORTS_REMEMBERED = 64
BACKFILL = "backfill"
_END = "end.json"


@dataclass(frozen=True, slots=True)
class KeptFile:
    """One file as readers find it. `path` is relative to the table's folder."""

    path: str
    rows: int
    bytes: int
    sha256: str
    partition: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class ImportPart:
    """Some chunks of one import. `definition` is the shape of the rows; versions lie between the first and the last."""

    import_id: str
    chunks: tuple[str, ...]
    versions: tuple[int, ...]
    definition: str
    first_version: int
    last_version: int
    files: tuple[KeptFile, ...]

    @property
    def name(self) -> str:
        return part_name(self.first_version, self.chunks)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> "ImportPart":
        listed = {"chunks": tuple(data["chunks"]), "versions": tuple(data["versions"])}
        return ImportPart(**{**data, **listed, "files": tuple(KeptFile(**file) for file in data["files"])})


@dataclass(frozen=True, slots=True)
class Shape:
    """The definition the table was prepared for last. Rows at or below `floor` are deleted for good."""

    definition: str
    generation: int
    revision: int
    floor: int


class Ledger:
    def __init__(self, store: FileStore, tenant: str, below: str, table: str) -> None:
        self._store = store
        parts = (checked_name("tenant", tenant), below, checked_name("table", table))
        self.folder = "/".join(part for part in parts if part)
        # Records never change, so those of open imports are cached.
        self._records: OrderedDict[str, dict[str, ImportPart]] = OrderedDict()
        self._ended: set[str] = set()

    def shape(self) -> Shape | None:
        found = self._read(f"{OWN}/table.json")
        return None if found is None else Shape(**found)

    def save_shape(self, shape: Shape) -> None:
        self._put(f"{OWN}/table.json", asdict(shape))

    def imports(self) -> list[str]:
        """The imports that have a record here."""
        return sorted({name.split("/")[2] for name in self._names(f"{OWN}/parts")})

    def parts(self, import_id: str) -> list[ImportPart]:
        """Includes parts that are not whole."""
        names = self._names(f"{OWN}/parts/{import_id}")
        if any(name.endswith(_END) for name in names):
            self._ended.add(import_id)
        known = self._records.pop(import_id, {})
        found = {name: known.get(name) or self._read_part(name) for name in sorted(names) if not name.endswith(_END)}
        self._records[import_id] = {name: part for name, part in found.items() if part is not None}
        if len(self._records) > IMPORTS_REMEMBERED:
            self._records.popitem(last=False)
        return list(self._records[import_id].values())

    def _read_part(self, name: str) -> ImportPart | None:
        found = self._read(name)
        return None if found is None else ImportPart.from_dict(found)

    def is_whole(self, part: ImportPart) -> bool:
        try:
            return all(self._store.size(f"{self.folder}/{file.path}") == file.bytes for file in part.files)
        except FileNotFoundError:
            return False

    def whole_parts(self, import_id: str) -> list[ImportPart]:
        return [part for part in self.parts(import_id) if self.is_whole(part)]

    def record(self, part: ImportPart) -> None:
        self._put(_place(part), asdict(part))

    def forget(self, part: ImportPart) -> None:
        """Deletes the files first: the record stays as long as a file may exist."""
        self._store.delete(f"{self.folder}/{MANIFESTS}/{part.import_id}.json")
        for file in part.files:
            self._store.delete(f"{self.folder}/{file.path}")
        self._store.delete(f"{self.folder}/{_place(part)}")

    def end(self, import_id: str, chunks: Sequence[str]) -> None:
        """Records that the import has ended, and which of its chunks hold rows."""
        self._put(f"{OWN}/parts/{import_id}/{_END}", {"chunks": list(chunks)})
        self._ended.add(import_id)

    def conclude(self, import_id: str) -> None:
        """Writes the import's manifest if the import has ended and all its chunks are here."""
        ended = self._read(f"{OWN}/parts/{import_id}/{_END}") if import_id in self._ended else None
        if ended is None:
            return
        parts = self.whole_parts(import_id)
        if set(ended["chunks"]) <= {chunk for part in parts for chunk in part.chunks}:
            self._put(f"{MANIFESTS}/{import_id}.json", manifest(import_id, parts))
            self._ended.discard(import_id)

    def _names(self, below: str) -> list[str]:
        return [name.removeprefix(f"{self.folder}/") for name in self._store.names(f"{self.folder}/{below}")]

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = orjson.loads(self._store.get(f"{self.folder}/{name}"))
        except FileNotFoundError:
            return None
        return found

    def _put(self, name: str, document: dict[str, Any]) -> None:
        body = orjson.dumps(document, option=orjson.OPT_INDENT_2)
        self._store.put_stream(f"{self.folder}/{name}", io.BytesIO(body), len(body))


def manifest(import_id: str, parts: Iterable[ImportPart]) -> dict[str, Any]:
    files = sorted(
        (
            {**asdict(file), "first_version": part.first_version, "last_version": part.last_version}
            | {"definition": part.definition, "chunks": list(part.chunks)}
            for part in parts
            for file in part.files
        ),
        key=lambda file: str(file["path"]),
    )
    return {
        "import": import_id,
        "rows": sum(file["rows"] for file in files),
        "bytes": sum(file["bytes"] for file in files),
        "files": files,
    }


def part_name(first_version: int, chunks: Sequence[str]) -> str:
    """The same rows of the same chunks give the same name. Names sort by version."""
    digest = hashlib.blake2b("\n".join(sorted(chunks)).encode(), digest_size=10).hexdigest()
    return f"{first_version:020d}-{digest}"


def import_of(chunk: str) -> str:
    """The chunk's import, as part of a path. Rows that are older than the sink belong to no import."""
    import_id = chunk.rpartition("/")[0] or BACKFILL
    if not import_id.replace("_", "").replace("-", "").isalnum() or not import_id.isascii():
        raise SinkFailed(f"{chunk!r:.60} is not the name of a chunk.", Fault.TABLE)
    return import_id


def _place(part: ImportPart) -> str:
    return f"{OWN}/parts/{part.import_id}/{part.name}.json"
