"""The process that runs one query: a job on stdin; the tables it needs and then its result on stdout, one JSON line each.

1. Read the statement and the names of the readable tables.  2. Parse, check, ask for the tables that it names.
3. Make views over their files.  4. Lock DuckDB and the process.  5. Run, and answer with rows up to the limits."""

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

import duckdb

from millrace.model.errors import Invalid, MillraceError, TooLarge, Unavailable
from millrace.read.conditions import conditions_by_table
from millrace.read.plain_values import RowEncoder
from millrace.read.statement import Name, TableUse, tables_used
from millrace.read.views import TableFiles, exact, identifier, text, texts, view_query

ROWS_AT_ONCE = 100
# Beside busy processes of the platform it still gets a fair part of a core.
NICE = 5
# Memory for Python, DuckDB's code and thread stacks, besides the query's own.
PROCESS_SLACK_MB = 192
DEEPEST_TREE = 10_000
LONGEST_MESSAGE = 2000
DEAD_TABLE = '"main"."millrace dead positions"'
_MEGABYTE = 1 << 20


def main() -> None:
    # Whoever asks without end must not slow down imports, of other tenants in particular.
    os.nice(NICE)
    sys.setrecursionlimit(DEEPEST_TREE)
    job = json.loads(sys.stdin.buffer.readline())
    # In case the parent ends without killing us.
    signal.alarm(int(job["seconds"]) + 2)
    answer(job, sys.stdin.buffer, sys.stdout.buffer)


def answer(job: dict[str, Any], given: BinaryIO, out: BinaryIO) -> None:
    try:
        result = _result(job, given, out)
    except RecursionError:
        result = _failure(Invalid("The query is nested too deeply.", remedy="Simplify it.", code="query_failed"))
    except (MemoryError, duckdb.OutOfMemoryException):
        result = _failure(_over_memory(job["memory_mb"]))
    except duckdb.IOException:
        # Its message names files, which callers must not see.
        result = _failure(Unavailable("A file of the table could not be read.", remedy="Run the query again."))
    except duckdb.Error as error:
        remedy = "Correct the query; tables are named tenant.table."
        result = _failure(Invalid(str(error)[:LONGEST_MESSAGE], remedy=remedy, code="query_failed"))
    except MillraceError as error:
        result = _failure(error)
    out.write(result + b"\n")
    out.flush()


def _result(job: dict[str, Any], given: BinaryIO, out: BinaryIO) -> bytes:
    connection = open_database(job["memory_mb"], job["threads"])
    statements = connection.extract_statements(job["sql"])
    if len(statements) != 1:
        raise Invalid(f"The text holds {len(statements)} statements.", remedy="Send one SELECT.", code="query_refused")
    (tree,) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [job["sql"]]).fetchone() or ("{}",)
    parsed = json.loads(tree)
    uses = tables_used(parsed, ((tenant, table) for tenant, table in job["readable"]))
    needs = sorted({use.table for use in uses})
    out.write(
        json.dumps({"needs": needs, "wanted": [_wanted(parsed, uses, table) for table in needs]}).encode() + b"\n"
    )
    out.flush()
    tables = json.loads(given.readline())
    _make_views(connection, uses, tables)
    lock_database(connection, [path for table in tables["tables"] for path in (*table["whole"], *table["marked"])])
    _limit_process(job["memory_mb"])
    return _run(connection, statements[0], job)


def _wanted(tree: dict[str, Any], uses: Sequence[TableUse], table: Name) -> list[Any] | None:
    """The conditions of each place where the table is read; None if somewhere all its rows are."""
    known = conditions_by_table(tree)
    spellings = [use.spelled for use in uses if use.table == table]
    if not all(spelled in known for spelled in spellings):
        return None
    places = [place for spelled in spellings for place in known[spelled]]
    return [[one.to_json() for one in place] for place in places]


def open_database(memory_mb: int, threads: int) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": f"{memory_mb}MiB",
            "threads": threads,
            "temp_directory": "",
            "autoload_known_extensions": False,
            "autoinstall_known_extensions": False,
            "allow_community_extensions": False,
            "allow_persistent_secrets": False,
            "python_enable_replacements": False,
        },
    )
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _make_views(connection: duckdb.DuckDBPyConnection, uses: Sequence[TableUse], tables: dict[str, Any]) -> None:
    files = {(table["tenant"], table["table"]): TableFiles(**table) for table in tables["tables"]}
    if tables["dead"] is not None:
        connection.execute(f"CREATE TABLE {DEAD_TABLE} AS FROM read_parquet({text(tables['dead'])})")
    for use in uses:
        schema = identifier(use.spelled[0] if len(use.spelled) == 2 else "main")
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        # Two spellings of a table that differ in case only are one name for DuckDB.
        view = f"CREATE VIEW IF NOT EXISTS {schema}.{identifier(use.spelled[-1])}"
        connection.execute(f"{view} AS {view_query(files[use.table], DEAD_TABLE)}")


def lock_database(connection: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> None:
    # Both the pattern and the path that it finds are judged.
    allowed = [*paths, *(pattern for path in paths if (pattern := exact(path)) != path)]
    connection.execute(f"SET allowed_paths = {texts(allowed)}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _limit_process(memory_mb: int) -> None:
    """Limits memory through the kernel: DuckDB does not count all the memory that it uses."""
    most = _data_bytes() + (memory_mb + PROCESS_SLACK_MB) * _MEGABYTE
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _data_bytes() -> int:
    if sys.platform != "linux":
        return 0
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[5]) * resource.getpagesize()


def _run(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement, job: dict[str, Any]) -> bytes:
    started = time.perf_counter()
    cursor = connection.execute(statement)
    columns = [(str(name), str(kind)) for name, kind, *_ in cursor.description]
    encoder = RowEncoder([kind for _, kind in columns])
    rows: list[bytes] = []
    size, truncated = 0, False
    while not truncated and (batch := cursor.fetchmany(ROWS_AT_ONCE)):
        for row in batch:
            encoded = encoder.encode(row)
            size += len(encoded) + 1
            truncated = len(rows) == job["rows"] or size > job["bytes"]
            if truncated:
                break
            rows.append(encoded)
    if truncated and not rows:
        raise TooLarge(
            f"The first row alone is larger than {job['bytes']} bytes.",
            remedy="Select fewer columns, or a part of them.",
            code="query_result_too_large",
        )
    head = {"columns": columns, "truncated": truncated, "seconds": time.perf_counter() - started}
    return json.dumps(head).encode()[:-1] + b',"rows":[' + b",".join(rows) + b"]}"


def _failure(error: MillraceError) -> bytes:
    shown = {"kind": type(error).__name__, "message": error.message, "remedy": error.remedy, "code": error.code}
    return json.dumps({"error": shown}).encode()


def _over_memory(memory_mb: int) -> TooLarge:
    return TooLarge(
        f"The query needs more than its {memory_mb} MB of memory.",
        remedy="Select fewer columns, filter earlier, or aggregate before sorting and joining.",
        code="query_memory",
    )


if __name__ == "__main__":
    main()
