"""A million rows into a PostgreSQL table with a primary key, as a fraction of COPY and one ON CONFLICT insert by hand."""

import statistics
import time
from pathlib import Path

import psycopg

from bench.figure import Figure, at_least, at_most
from bench.memory import peak_memory
from bench.platform import TENANT
from bench.sinks import FIELDS, KEY, ROWS, WARMING_ROWS, declare, postgres_sink, sinks_platform
from tests.support.postgres import postgres

ROUNDS = 3
MOST_WORKER_MB = 400
_TYPES = {"string": "text", "int": "integer", "double": "double precision"}
# Kafka Connect's JDBC sink on the same machine, CSV to table: 33,683 to 53,211 rows/s.
PEER = "Kafka Connect 0.034 to 0.053 M rows/s"


def run() -> list[Figure]:
    with sinks_platform() as bench, postgres() as dsn:
        path = bench.data.rows(ROWS, 90_000_000)
        declare(bench, "warming", [postgres_sink(dsn)])
        bench.load(bench.data.rows(WARMING_ROWS, 80_000_000), "warming")
        by_hand, ours = [], []
        with peak_memory(bench.running.process.pid) as peaks:
            for number in range(ROUNDS):
                by_hand.append(_by_hand(dsn, path))
                declare(bench, f"kept{number}", [postgres_sink(dsn)])
                ours.append(bench.load(path, f"kept{number}"))
                _check(dsn, f"kept{number}")
    hand, platform = statistics.median(by_hand), statistics.median(ours)
    note = f"{ROWS / platform / 1e6:.3f} M rows/s of {ROWS / hand / 1e6:.3f} M rows/s by hand; {PEER}"
    return [
        at_least("sink_postgres", hand / platform, "of COPY + ON CONFLICT", 0.6, note),
        at_most("sink_postgres.python_worker", peaks["python_worker"], "MB", MOST_WORKER_MB),
    ]


def _by_hand(dsn: str, path: Path) -> float:
    names = ", ".join(f'"{name}"' for name, _ in FIELDS)
    columns = ", ".join(f'"{name}" {_TYPES[kind]}' for name, kind in FIELDS)
    key = ", ".join(f'"{name}"' for name in KEY)
    changed = ", ".join(f'"{name}" = excluded."{name}"' for name, _ in FIELDS if name not in KEY)
    with psycopg.connect(dsn) as connection:
        connection.execute("DROP TABLE IF EXISTS by_hand")
        connection.execute(f"CREATE TABLE by_hand ({columns}, PRIMARY KEY ({key}))")
        connection.commit()
        begun = time.perf_counter()
        connection.execute(f"CREATE TEMP TABLE staging ON COMMIT DROP AS SELECT {names} FROM by_hand WHERE false")
        statement = f"COPY staging ({names}) FROM STDIN (FORMAT csv, HEADER)"
        with path.open("rb") as file, connection.cursor() as cursor, cursor.copy(statement) as copy:
            while piece := file.read(1 << 20):
                copy.write(piece)
        connection.execute(
            f"INSERT INTO by_hand ({names}) SELECT {names} FROM staging ON CONFLICT ({key}) DO UPDATE SET {changed}"
        )
        connection.commit()
        return time.perf_counter() - begun


def _check(dsn: str, table: str) -> None:
    with psycopg.connect(dsn) as connection:
        for_us = connection.execute(f'SELECT count(*), sum("SPEEDIN") FROM "{TENANT}"."{table}"').fetchone()
        for_them = connection.execute('SELECT count(*), sum("SPEEDIN") FROM by_hand').fetchone()
    assert for_us is not None
    assert for_them is not None
    if for_us[0] != for_them[0] or abs(for_us[1] - for_them[1]) > 1e-6 * abs(for_them[1]):
        raise RuntimeError(f"{table} holds {for_us}, by hand it is {for_them}")
