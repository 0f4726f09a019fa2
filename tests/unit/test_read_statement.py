"""What a query may do: the check of the parsed statement, and the locked DuckDB behind it, each on its own."""

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace.model.errors import Invalid
from millrace.read.query_child import lock_database, open_database
from millrace.read.statement import FUNCTIONS_OFF, TABLE_FUNCTIONS, tables_used

READABLE = [("acme", "orders"), ("acme", "customers"), ("beta", "orders"), ("Gamma", "Items"), ("temp", "readings")]
CUSTOMERS = {("acme", "customers")}
BOTH = {("acme", "customers"), ("beta", "orders")}
ORDERS = {("acme", "orders"), ("beta", "orders")}


@pytest.fixture(scope="module")
def parser() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def used(parser: duckdb.DuckDBPyConnection, sql: str) -> set[tuple[str, str]]:
    (tree,) = parser.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone() or ("",)
    return {use.table for use in tables_used(json.loads(tree), READABLE)}


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT 1", set()),
        ("FROM acme.orders", {("acme", "orders")}),
        ("SELECT acme.orders.id FROM acme.orders", {("acme", "orders")}),
        ('SELECT * FROM "acme"."orders" o JOIN beta.orders b USING (id)', ORDERS),
        ("SELECT * FROM customers", CUSTOMERS),
        ("SELECT * FROM gamma.ITEMS", {("Gamma", "Items")}),
        ("SELECT * FROM readings", {("temp", "readings")}),
        ("WITH a AS (FROM customers), b AS (FROM a) SELECT * FROM b", CUSTOMERS),
        ("WITH orders AS (FROM acme.orders) SELECT * FROM orders", {("acme", "orders")}),
        ("WITH customers AS (FROM customers) FROM customers", CUSTOMERS),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT * FROM n", set()),
        ("SELECT (SELECT max(id) FROM beta.orders b WHERE b.id = c.id) FROM customers c", BOTH),
        ("SELECT * FROM customers WHERE EXISTS (FROM beta.orders) ORDER BY 1 LIMIT 3 OFFSET 1", BOTH),
        ("FROM acme.orders UNION ALL BY NAME FROM beta.orders", ORDERS),
        ("SELECT * FROM customers TABLESAMPLE 10%", CUSTOMERS),
        ("SELECT i, x FROM range(3) r(i), unnest([1, 2]) u(x), generate_series(1, 2)", set()),
        ("SELECT key FROM customers, json_each(customers.doc)", CUSTOMERS),
        ("SELECT * FROM (VALUES (1), (2)) t(a) ASOF JOIN customers c ON t.a >= c.id", CUSTOMERS),
        ("FROM customers PIVOT (sum(amount) FOR kind IN ('a', 'b'))", CUSTOMERS),
        ("FROM customers UNPIVOT (v FOR k IN (a, b))", CUSTOMERS),
        ("SELECT COLUMNS('a.*'), * EXCLUDE (id) REPLACE (lower(name) AS name) FROM customers", CUSTOMERS),
        ("SELECT row_number() OVER (PARTITION BY a ORDER BY b) AS n FROM customers QUALIFY n = 1", CUSTOMERS),
        ("SELECT list_transform([1, 2], lambda x: x + 1), [x * 2 FOR x IN [1, 2] IF x > 1], {'a': 1}.a", set()),
        ("SELECT a, sum(b) FILTER (WHERE c) FROM customers GROUP BY ROLLUP (a) HAVING count(*) > 1", CUSTOMERS),
        ("SELECT DISTINCT ON (a) CAST(b AS DECIMAL(10, 2)), INTERVAL 1 DAY, DATE '2024-01-01' FROM customers", CUSTOMERS),
        ("SELECT * FROM customers c, LATERAL (SELECT * FROM beta.orders b WHERE b.id = c.id)", BOTH),
        ("SELECT CASE WHEN a BETWEEN 1 AND 2 THEN b ELSE c END, a IN (SELECT id FROM beta.orders) FROM customers", BOTH),
    ],
)  # fmt: skip
def test_reading_is_accepted_and_names_its_tables(
    parser: duckdb.DuckDBPyConnection, sql: str, tables: set[tuple[str, str]]
) -> None:
    assert used(parser, sql) == tables


HOSTILE = [
    # files
    "SELECT * FROM read_parquet('/etc/passwd')",
    "SELECT * FROM read_parquet('{own}')",
    "SELECT * FROM READ_PARQUET(['{own}'])",
    "SELECT * FROM system.main.read_parquet('{own}')",
    "SELECT * FROM parquet_scan('{own}')",
    "SELECT * FROM '{own}'",
    'SELECT * FROM "{own}"',
    "SELECT * FROM '{foreign}'",
    "SELECT * FROM read_parquet('{foreign}')",
    "SELECT * FROM parquet_metadata('{own}')",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/proc/self/environ')",
    "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM read_duckdb('/tmp/x.db')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM glob('/**')",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT 1 WHERE EXISTS (SELECT * FROM read_text('/etc/passwd'))",
    "SELECT 1 ORDER BY (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT 1 LIMIT (SELECT count(*) FROM read_text('/etc/passwd'))",
    "SELECT sum(1) OVER (ORDER BY (SELECT content FROM read_text('/etc/passwd')))",
    "SELECT * FROM range((SELECT count(*) FROM glob('/etc/*')))",
    "SELECT * FROM customers c JOIN LATERAL (SELECT * FROM read_text('/etc/passwd')) ON true",
    "FROM (SELECT * FROM read_text('/etc/passwd')) PIVOT (count(*) FOR size IN (1))",
    "SELECT list_transform([1], lambda x: (SELECT content FROM read_text('/etc/passwd')))",
    # CTEs that hide a name only elsewhere
    'SELECT * FROM \'{own}\', (WITH "{own}" AS (SELECT 1) FROM "{own}")',
    "WITH a AS (FROM '{own}'), \"{own}\" AS (SELECT 1) FROM a",
    'WITH "{own}" AS (FROM \'{own}\') FROM "{own}"',
    "WITH a AS (FROM duckdb_settings), duckdb_settings AS (SELECT 1) FROM a",
    # SQL inside text
    "SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')",
    "SELECT * FROM query_table('{own}')",
    "SELECT json_serialize_plan('SELECT * FROM read_parquet(''{own}'')')",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    # settings, catalogs, the process
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_views()",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM pg_catalog.pg_views",
    "SELECT current_setting('allowed_paths')",
    "SELECT Current_Setting('temp_directory')",
    "SELECT getenv('HOME')",
    "SELECT write_log('x')",
    "SELECT sleep_ms(100000)",
    "SELECT pg_get_viewdef(0)",
    "SELECT * FROM python_map_function((SELECT 1), 1)",
    "SELECT * FROM pandas_scan(1)",
    "SHOW TABLES",
    "DESCRIBE acme.orders",
    "SELECT * FROM (SHOW ALL TABLES)",
    "SUMMARIZE acme.orders",
    # more than reading
    "CREATE TABLE x AS SELECT 1",
    "CREATE MACRO f() AS TABLE SELECT * FROM read_text('/etc/passwd')",
    "INSERT INTO acme.orders SELECT 1",
    "WITH a AS (INSERT INTO acme.orders SELECT 1 RETURNING *) SELECT * FROM a",
    "WITH a AS (DELETE FROM acme.orders RETURNING *) SELECT * FROM a",
    "WITH a AS (UPDATE acme.orders SET id = 1 RETURNING *) SELECT * FROM a",
    "DELETE FROM acme.orders",
    "DROP VIEW acme.orders",
    "COPY (SELECT 1) TO '/tmp/millrace-out.csv'",
    "COPY acme.orders FROM '/etc/passwd'",
    "EXPORT DATABASE '/tmp/millrace-out'",
    "ATTACH '/tmp/millrace-x.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "PREPARE p AS SELECT 1",
    "EXPLAIN ANALYZE SELECT 1",
    "SELECT 1; SELECT * FROM read_text('/etc/passwd')",
    "SELECT 1; DROP TABLE x",
    "USE acme",
    "CHECKPOINT",
    "SELECT $1",
    "",
    "-- nothing",
]


@pytest.mark.parametrize("sql", HOSTILE)
def test_anything_else_is_refused(parser: duckdb.DuckDBPyConnection, sql: str) -> None:
    with pytest.raises(Invalid):
        used(parser, sql.format(own="/lake/acme/orders/a.parquet", foreign="/lake/other/secret/b.parquet"))


@pytest.mark.parametrize(
    "sql",
    ["FROM other.orders", "FROM nothing", "FROM memory.acme.orders", "FROM main.orders", "FROM acme.items"],
)
def test_a_table_that_the_caller_may_not_read_does_not_exist(parser: duckdb.DuckDBPyConnection, sql: str) -> None:
    with pytest.raises(Invalid, match="There is no table") as refusal:
        used(parser, sql)
    assert refusal.value.code == "query_no_table"


def test_a_bare_name_of_two_tenants_is_ambiguous(parser: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(Invalid, match=r"orders may be any of acme\.orders, beta\.orders"):
        used(parser, "FROM orders")


def test_a_tenant_named_like_a_catalog_is_reached_by_the_bare_name(parser: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(Invalid, match="without its tenant: readings"):
        used(parser, "FROM temp.readings")


def test_names_that_differ_by_case_alone_cannot_meet_in_one_query(parser: duckdb.DuckDBPyConnection) -> None:
    readable = [("acme", "Orders"), ("acme", "orders")]

    def uses(sql: str) -> set[tuple[str, str]]:
        (tree,) = parser.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone() or ("",)
        return {use.table for use in tables_used(json.loads(tree), readable)}

    assert uses('FROM acme."Orders"') == {("acme", "Orders")}
    with pytest.raises(Invalid, match="takes for the same name"):
        uses('FROM acme."Orders", acme.orders')
    with pytest.raises(Invalid, match="may be any of"):
        uses("FROM acme.ORDERS")


def test_every_function_with_a_side_effect_is_known(parser: duckdb.DuckDBPyConnection) -> None:
    """Fails when a new DuckDB brings one: decide whether queries may call it."""
    harmless = {
        "current_database", "current_date", "current_schema", "current_schemas", "error", "gen_random_uuid", "uuid", "uuidv4",
        "get_current_time", "get_current_timestamp", "in_search_path", "now", "random", "today", "transaction_timestamp",
        "uuidv7",
    }  # fmt: skip
    found = parser.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'scalar'"
        " AND (has_side_effects OR stability <> 'CONSISTENT')"
    ).fetchall()
    assert {name for (name,) in found} - FUNCTIONS_OFF == harmless


TOUCHES_THE_OUTSIDE = ("read_", "glob(", "copy (", "attach", "install", "load", "set ", "export", "{foreign}")


def test_a_locked_database_reaches_nothing_but_the_files_of_its_tables(tmp_path: Path) -> None:
    """The second wall alone: the statements run without having been checked."""
    own, foreign = str(tmp_path / "own.parquet"), str(tmp_path / "foreign.parquet")
    for path in (own, foreign):
        pq.write_table(pa.table({"id": [1]}), path)
    with open_database(memory_mb=128, threads=1) as connection:
        lock_database(connection, [own])
        assert connection.execute(f"FROM read_parquet('{own}')").fetchall() == [(1,)]
        outside = [sql for sql in HOSTILE if any(word in sql.lower() for word in TOUCHES_THE_OUTSIDE)]
        attempts = [sql for sql in outside if "{own}" not in sql]
        assert len(attempts) >= 20
        for sql in attempts:
            with pytest.raises(duckdb.Error):
                connection.execute(sql.format(foreign=foreign)).fetchall()


def test_the_table_functions_that_are_on_exist(parser: duckdb.DuckDBPyConnection) -> None:
    found = parser.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type LIKE 'table%'"
    ).fetchall()
    assert {name for (name,) in found} >= TABLE_FUNCTIONS
