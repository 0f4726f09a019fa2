"""The file connector: chunks become parts of imports, and a ledger records which parts are whole."""

import hashlib
import io
import tempfile
import uuid
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from millrace.arrow.types import stored_schema
from millrace.model.columns import DELETED_COLUMN
from millrace.model.errors import Invalid, Unavailable
from millrace.model.sinks import Fault, SinkFailed
from millrace.model.table import Definition
from millrace.sink.connector import Definitions, Rows, Work
from millrace.sink.context import SinkContext
from millrace.sink.files.format import decode, encode
from millrace.sink.files.layout import split
from millrace.sink.files.ledger import ImportPart, KeptFile, Ledger, Shape, import_of, part_name
from millrace.sink.files.rows import CHUNK, with_chunks
from millrace.sink.files.settings import FilesSettings
from millrace.sink.files.store import below_tenant, open_store

SPOOLED_BYTES = 8 << 20
Pairs = list[tuple[str, int]]


class FilesSink:
    def __init__(self, settings: FilesSettings, context: SinkContext) -> None:
        self._settings = settings
        self._store = open_store(settings, context)
        self._below = below_tenant(settings, context)
        self._definitions: Definitions = _unknown
        self._ledgers: dict[tuple[str, str], Ledger] = {}

    def check(self) -> None:
        name, body = f".millrace-check-{uuid.uuid4().hex}", b"ok"
        self._store.put_stream(name, io.BytesIO(body), len(body))
        self._store.delete(name)

    def prepare(self, definition: Definition, definitions: Definitions) -> None:
        self._definitions = definitions
        ledger = self._ledger(definition)
        known = ledger.shape()
        if known is None or (known.generation, known.revision) < (definition.generation, definition.revision):
            floor = max(definition.floor, known.floor if known else 0)
            self._cut(ledger, floor if known is None or floor > known.floor else 0)
            ledger.save_shape(Shape(definition.fingerprint, definition.generation, definition.revision, floor))

    def write(self, work: Work) -> None:
        ledger = self._ledger(work.definition)
        floor = self._raise_floor(ledger, work.floor)
        touched = [import_id for rows in work.rows for import_id in self._add(ledger, work.definition, rows, floor)]
        for import_id, chunks in work.ended:
            ledger.end(import_of(f"{import_id}/"), chunks)
            touched.append(import_id)
        for import_id in dict.fromkeys(touched):
            ledger.conclude(import_id)

    def _raise_floor(self, ledger: Ledger, floor: int) -> int:
        shape = ledger.shape()
        if shape is None:
            raise SinkFailed("The table's folder has not been prepared, or was emptied.", Fault.TABLE)
        if floor > shape.floor:
            self._cut(ledger, floor)
            ledger.save_shape(replace(shape, floor=floor))
        return max(floor, shape.floor)

    def _cut(self, ledger: Ledger, floor: int) -> None:
        """Deletes rows up to the floor: whole files, and rewrites those that also hold newer rows."""
        imports = ledger.imports() if floor else []
        for part in [part for import_id in imports for part in ledger.parts(import_id)]:
            if part.first_version > floor:
                continue
            if part.last_version > floor and ledger.is_whole(part):
                rows = self._read(ledger, part)
                kept = _above(list(zip(part.chunks, part.versions, strict=True)), floor)
                newer = rows.filter(pc.greater(rows["_version"], floor))
                self._write_part(ledger, self._definitions(part.definition), part.import_id, kept, newer)
            ledger.forget(part)

    def _add(self, ledger: Ledger, definition: Definition, rows: Rows, floor: int) -> list[str]:
        """Writes the chunks that are missing. Returns the imports."""
        of_import: dict[str, Pairs] = {}
        for chunk, version in zip(rows.chunks, rows.versions, strict=True):
            of_import.setdefault(import_of(chunk), []).append((chunk, version))
        table: pa.Table | None = None
        for import_id, pairs in of_import.items():
            new = self._missing(ledger, import_id, _above(pairs, floor))
            if not new:
                continue
            table = with_chunks(rows, definition) if table is None else table
            own = pc.is_in(table[CHUNK], pa.array([chunk for chunk, _ in new]))
            wanted = pc.and_(own, pc.greater(table["_version"], floor))
            self._write_part(ledger, definition, import_id, new, table.filter(wanted))
        return list(of_import)

    def _missing(self, ledger: Ledger, import_id: str, pairs: Pairs) -> Pairs:
        """The chunks that are missing. What an interrupted write left of them is deleted."""
        asked = {chunk for chunk, _ in pairs}
        there: set[str] = set()
        for part in ledger.parts(import_id):
            if asked.isdisjoint(part.chunks):
                continue
            if ledger.is_whole(part):
                there.update(part.chunks)
            else:
                ledger.forget(part)
        return [pair for pair in pairs if pair[0] not in there]

    def _write_part(
        self, ledger: Ledger, definition: Definition, import_id: str, pairs: Pairs, table: pa.Table
    ) -> None:
        """1. Encode the files here. 2. Write the record of them. 3. Upload the files."""
        chunks, versions = tuple(chunk for chunk, _ in pairs), tuple(version for _, version in pairs)
        found = (
            pc.min_max(table["_version"]).as_py() if table.num_rows else {"min": min(versions), "max": max(versions)}
        )
        table = table.select([field.name for field in self._schema(definition)])
        name = f"{part_name(found['min'], chunks)}-{import_id}.{self._settings.format}"
        with ExitStack() as spools:
            files = []
            for folder, partition, rows in split(self._settings, table, import_id, found["min"]):
                # Small ones stay in memory.
                spool = spools.enter_context(tempfile.SpooledTemporaryFile(SPOOLED_BYTES))
                encode(rows, self._settings.format, definition.table.name, spool)  # 1
                size = spool.tell()
                spool.seek(0)
                digest = hashlib.file_digest(spool, "sha256").hexdigest()
                files.append((KeptFile(f"{folder}/{name}", rows.num_rows, size, digest, partition), spool))
            kept = tuple(file for file, _ in files)
            ledger.record(
                ImportPart(import_id, chunks, versions, definition.fingerprint, found["min"], found["max"], kept)
            )  # 2
            for file, spool in files:
                spool.seek(0)
                self._store.put_stream(f"{ledger.folder}/{file.path}", spool, file.bytes)  # 3

    def classify(self, error: BaseException) -> Fault:
        match error:
            case SinkFailed():
                return error.fault
            case Invalid() | Unavailable() | pa.ArrowCancelled():
                return Fault.SINK
            case pa.ArrowException():
                return Fault.TABLE
            # What pyarrow, HDFS, S3 and the file system raise when a file cannot be written.
            case OSError() | MemoryError():
                return Fault.SINK
        return Fault.SINK if type(error).__module__.startswith("google.") else Fault.TABLE

    def close(self) -> None:
        """Connections are the process's, not this sink's."""

    def _read(self, ledger: Ledger, part: ImportPart) -> pa.Table:
        schema = self._schema(self._definitions(part.definition))
        bodies = [self._store.get(f"{ledger.folder}/{file.path}") for file in part.files]
        tables = [decode(body, self._settings.format, schema) for body in bodies]
        rows = pa.concat_tables(tables) if tables else schema.empty_table()
        if DELETED_COLUMN not in rows.column_names:
            rows = rows.append_column(DELETED_COLUMN, pa.repeat(pa.scalar(False), rows.num_rows))
        return rows

    def _schema(self, definition: Definition) -> pa.Schema:
        loose = [pa.field(field.name, field.type) for field in stored_schema(definition.columns)]
        return pa.schema([*loose, pa.field(DELETED_COLUMN, pa.bool_())] if self._settings.is_changelog else loose)

    def _ledger(self, definition: Definition) -> Ledger:
        known = definition.tenant, definition.table.name
        if known not in self._ledgers:
            self._ledgers[known] = Ledger(self._store, definition.tenant, self._below, definition.table.name)
        return self._ledgers[known]


def _unknown(fingerprint: str) -> Definition:
    raise SinkFailed(f"The definition {fingerprint} is unknown: the table was not prepared.", Fault.TABLE)


def _above(pairs: Pairs, floor: int) -> Pairs:
    """Chunks without a version hold rows that are older than the sink. They are kept."""
    return [(chunk, version) for chunk, version in pairs if version > floor or version == 0]
