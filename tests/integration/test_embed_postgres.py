"""The throw-away PostgreSQL of the tests itself."""

import psycopg


def test_it_takes_tables_and_rows(postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("create temporary table numbers (n bigint primary key)")
        connection.execute("insert into numbers select generate_series(1, 1000)")
        assert connection.execute("select sum(n) from numbers").fetchone() == (500500,)
