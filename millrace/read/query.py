"""A user's SQL over the tables that the user may read: names, columns and text in, rows out, within limits.

It runs in a process of its own that sees only the files of the tables it names. statement.py says what is refused."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import IO, Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from millrace.lake.actions import AddFile
from millrace.lake.condition import Condition
from millrace.lake.foreign import refuse_unreadable
from millrace.lake.log import load
from millrace.lake.pruning import may_have
from millrace.lake.read import LiveFile, live_files
from millrace.lake.remote import TooLate
from millrace.lake.store import Store
from millrace.model.errors import Invalid, MillraceError, TooLarge, Unavailable
from millrace.outbound.http import HttpFailed
from millrace.read.duckdb_types import duckdb_type

MOST_TEXT = 400
DEAD_AT_ONCE = 1 << 20
DEAD_SCHEMA = pa.schema([("file", pa.dictionary(pa.int32(), pa.string())), ("position", pa.int64())])
_TOLD = (HttpFailed, TooLate)
_KINDS: dict[str, type[MillraceError]] = {kind.__name__: kind for kind in (Invalid, TooLarge, Unavailable)}


@dataclass(frozen=True, slots=True)
class ReadableTable:
    """A table that the caller may read. `columns` are its stored columns: the declared ones, then the platform's. `open`
    opens the store of its files."""

    tenant: str
    table: str
    columns: pa.Schema
    open: Callable[[], Store]


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """`seconds` counts from the start of the process. `bytes` is the size of the rows as JSON, `fetched_bytes` the size of
    remote files that must be fetched."""

    seconds: float = 30
    memory_mb: int = 512
    rows: int = 10_000
    threads: int = 2
    bytes: int = 32 << 20
    fetched_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class QueryResult:
    """`columns` are (name, DuckDB type). `truncated`: the limits on rows or bytes cut the result."""

    columns: list[tuple[str, str]]
    rows: list[list[Any]]
    truncated: bool
    seconds: float


def run_query(readable: Sequence[ReadableTable], sql: str, limits: QueryLimits) -> QueryResult:
    """The rows of one SELECT over "tenant"."table" views, or a refusal."""
    started = time.monotonic()
    by_name = {(table.tenant, table.table): table for table in readable}
    with _child() as child:
        with _deadline(child, limits.seconds) as passed:
            result = _converse(child, by_name, sql, limits)
        if passed.is_set():
            raise TooLarge(
                f"The query took longer than {limits.seconds:g} s.",
                remedy="Filter or aggregate more, or read fewer tables at once.",
                code="query_timeout",
            )
    if result is None:
        raise Invalid(
            "The query ended the process that ran it.",
            remedy="Simplify the query, or read less at once.",
            code="query_crashed",
        )
    if "error" in result:
        error = result["error"]
        raise _KINDS[error["kind"]](error["message"], remedy=error["remedy"], code=error["code"])
    columns = [(name, kind) for name, kind in result["columns"]]
    return QueryResult(columns, result["rows"], result["truncated"], round(time.monotonic() - started, 4))


def _converse(
    child: "subprocess.Popen[bytes]", by_name: dict[tuple[str, str], ReadableTable], sql: str, limits: QueryLimits
) -> dict[str, Any] | None:
    """The child's last line; None if it ended without one."""
    job = {"sql": sql, "readable": list(by_name), **asdict(limits)}
    with suppress(BrokenPipeError), tempfile.NamedTemporaryFile(prefix="millrace-query-", suffix=".parquet") as dead:
        _tell(child, job)
        reply = _hear(child)
        if reply is None or "error" in reply:
            return reply
        needs = [by_name[tenant, table] for tenant, table in reply["needs"]]
        _tell(child, _tables(list(zip(needs, reply["wanted"], strict=True)), dead, limits))
        return _hear(child)
    return None


def _tables(
    tables: Sequence[tuple[ReadableTable, list[Any] | None]], dead: IO[bytes], limits: QueryLimits
) -> dict[str, Any]:
    """What the child needs to read the tables, each with the conditions of the places where it is read. Deleted positions go
    into the file `dead`."""
    described, marked = [], []
    for table, wanted in tables:
        files = _files(table, wanted, limits)
        marked += [file for file in files if file.vector is not None]
        described.append(
            {
                "tenant": table.tenant,
                "table": table.table,
                "columns": [(field.name, duckdb_type(field.type)) for field in table.columns],
                "whole": [file.path for file in files if file.vector is None],
                "marked": [file.path for file in files if file.vector is not None],
            }
        )
    if marked:
        _write_dead_positions(marked, dead.name)
    return {"tables": described, "dead": dead.name if marked else None}


def _files(table: ReadableTable, wanted: list[Any] | None, limits: QueryLimits) -> list[LiveFile]:
    most_bytes = limits.fetched_bytes
    is_wanted = _is_wanted(table.columns, wanted)
    try:
        store = table.open()
        store.hurry(limits.seconds)
        snapshot = load(store)
        refuse_unreadable(snapshot, f"{table.tenant}.{table.table}")
        chosen = {file.path: file for file in snapshot.files.values() if is_wanted(file)}
        named = {file.name: file.size for file in chosen.values()}
        size = sum(named[name] for name in store.absent(list(named)))
        if size > most_bytes:
            raise TooLarge(
                f"A query brings {most_bytes >> 20} MB here; {table.tenant}.{table.table} has {size >> 20} MB elsewhere.",
                remedy=f"Read {store.where} with an engine of your own: polars, Spark, DuckDB.",
                code="query_fetch",
            )
        return live_files(store, snapshot, chosen.values())
    except OSError as error:
        # What a store answers names the file. Other texts may name paths of the platform.
        why = f"{type(error).__name__} {error}"[:MOST_TEXT] if isinstance(error, _TOLD) else type(error).__name__
        raise Unavailable(
            f"The files of {table.tenant}.{table.table} cannot be had now: {why}.",
            remedy="Run the query again. If it fails again, see whether the table's place has these files, and answers.",
        ) from error


def _is_wanted(columns: pa.Schema, wanted: list[Any] | None) -> Callable[[AddFile], bool]:
    """Whether a file may have rows that the query needs, by its statistics."""
    if wanted is None:
        return lambda file: True
    alternatives = [[Condition.from_json(one) for one in place] for place in wanted]
    types = {field.name.lower(): field.type for field in columns}
    return lambda file: may_have(file.stats, types, alternatives)


def _write_dead_positions(files: Sequence[LiveFile], path: str) -> None:
    """File by file, and of each so many rows at a time: all together may be many."""
    with pq.ParquetWriter(path, DEAD_SCHEMA, compression="lz4") as writer:
        for file in files:
            dead = file.dead
            for start in range(0, 0 if dead is None else len(dead), DEAD_AT_ONCE):
                assert dead is not None
                positions = pa.array(dead[start : start + DEAD_AT_ONCE].astype(np.int64))
                paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(positions), np.int32)), [file.path])
                writer.write_table(pa.table({"file": paths, "position": positions}, schema=DEAD_SCHEMA))


@contextmanager
def _child() -> Iterator["subprocess.Popen[bytes]"]:
    # The environment may hold secrets: the process gets none of it. With our import path and without `site` it starts faster.
    environment = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "LANG": "C.UTF-8"}
    child = subprocess.Popen(
        [sys.executable, "-S", "-P", "-m", "millrace.read.query_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=os.sep,
        env=environment,
    )
    try:
        yield child
    finally:
        child.kill()
        for pipe in (child.stdin, child.stdout):
            with suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
        child.wait()


@contextmanager
def _deadline(child: "subprocess.Popen[bytes]", seconds: float) -> Iterator[threading.Event]:
    """Kills a process that still runs after the time limit, and sets the event."""
    passed = threading.Event()

    def end() -> None:
        passed.set()
        child.kill()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield passed
    finally:
        timer.cancel()


def _tell(child: "subprocess.Popen[bytes]", message: dict[str, Any]) -> None:
    assert child.stdin is not None
    child.stdin.write(orjson.dumps(message) + b"\n")
    child.stdin.flush()


def _hear(child: "subprocess.Popen[bytes]") -> dict[str, Any] | None:
    assert child.stdout is not None
    line = child.stdout.readline()
    return orjson.loads(line) if line.endswith(b"\n") else None
