"""What only the JDBC sink must keep: numbers that MySQL has not, keys that differ by a space, DDL that broke off, drivers
that the operator registered, servers that ask for our files."""

import json
import math
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from millrace.arrow.types import arrow_type
from millrace.model.addresses import literal
from millrace.model.errors import Invalid, Unavailable
from millrace.model.sinks import Fault, SinkFailed, SinkTarget
from millrace.model.table import Definition
from millrace.outbound import addresses
from millrace.sink.connector import Rows, Work
from millrace.sink.jdbc import link as jdbc_link
from millrace.sink.jdbc.faults import JdbcFailed
from millrace.sink.jdbc.jvm import _routed, _start_jvm
from millrace.sink.jdbc.settings import JdbcSinkSettings
from millrace.sink.jdbc.sink import JdbcSink
from millrace.sink.registry import settings_class
from tests.sinks.test_contract import ID, TEXT, definition, known, rows, stored
from tests.support.astray import ALLOWED, NAME, PERMITTED, a_pair
from tests.support.mariadb import ADMINISTRATOR, GUARDED, PASSWORD, USER
from tests.support.reading_back import read_back
from tests.support.sink_context import open_target, sink_context


def target(port: int, **settings: Any) -> SinkTarget:
    given = {"host": "127.0.0.1", "port": port, "database": "lake", "user": USER, **settings}
    return SinkTarget("mart", "jdbc", True, given)


def opened(target: SinkTarget, secret: Callable[[str], str]) -> JdbcSink:
    sink = open_target(target, secret)
    assert isinstance(sink, JdbcSink)
    return sink


@pytest.fixture
def sink(mariadb_port: int) -> Iterator[JdbcSink]:
    found = opened(target(mariadb_port), str)
    yield found
    found.close()


def one_column(kind: Any, cells: list[Any], *, is_key: bool = False) -> tuple[Definition, Rows]:
    field = {"name": "value", "type": kind if is_key else ["null", kind]}
    table = definition([ID, field], key=("value",) if is_key else ("id",))
    columns = {
        "id": pa.array(range(len(cells)), pa.int64()),
        "value": pa.array(cells, arrow_type(table.columns[1])),
        "_version": pa.array([7] * len(cells), pa.int64()),
        "_import": pa.array(["imp_1"] * len(cells)),
        "_row": pa.array(range(len(cells)), pa.int64()),
        "_deleted": pa.array([False] * len(cells)),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    return table, Rows(("imp_1/0",), (7,), lambda: iter([batch]))


def written(sink: JdbcSink, kind: Any, cells: list[Any], *, is_key: bool = False) -> list[Any]:
    table, given = one_column(kind, cells, is_key=is_key)
    sink.prepare(table, known(table))
    sink.write(Work(table, [given]))
    found: list[dict[str, Any]] = sorted(read_back(sink, table).to_pylist(), key=lambda row: int(row["id"]))
    return [row["value"] for row in found]


def test_numbers_that_mysql_has_not_are_kept_beside(sink: JdbcSink) -> None:
    found = written(sink, "double", [math.nan, math.inf, -math.inf, 0.1, None])
    assert math.isnan(found[0])
    assert found[1:] == [math.inf, -math.inf, 0.1, None]


def test_a_key_that_is_not_a_number_is_a_row_s_fault(sink: JdbcSink) -> None:
    with pytest.raises(Invalid) as met:
        written(sink, "double", [math.nan, 1.0], is_key=True)
    assert sink.classify(met.value) is Fault.ROW


def test_texts_are_the_same_only_if_every_letter_is(sink: JdbcSink) -> None:
    keys = ["a", "A", "a ", "ä", "a\x00", "", "🚰", "'; DROP TABLE x; --", "\\"]
    assert written(sink, "string", keys, is_key=True) == keys


@pytest.mark.parametrize("too_much", [date(9999, 12, 31), None])
def test_what_does_not_fit_is_a_row_s_fault_and_leaves_nothing(sink: JdbcSink, too_much: date | None) -> None:
    kind = {"type": "int", "logicalType": "date"}
    days = [0, 5_000_000] if too_much is None else [0, (too_much - date(1970, 1, 1)).days]
    table, given = one_column(kind, days)
    sink.prepare(table, known(table))
    if too_much is not None:
        sink.write(Work(table, [given]))
        assert read_back(sink, table)["value"].to_pylist() == [date(1970, 1, 1), too_much]
        return
    with pytest.raises(pymysql.err.DataError) as met:
        sink.write(Work(table, [given]))
    assert sink.classify(met.value) is Fault.ROW
    assert read_back(sink, table).num_rows == 0


def test_a_key_too_long_for_an_index_is_a_row_s_fault(sink: JdbcSink) -> None:
    with pytest.raises(pymysql.err.DataError) as met:
        written(sink, "string", ["short", "x" * 1000], is_key=True)
    assert sink.classify(met.value) is Fault.ROW


def test_tenants_that_name_the_same_database_share_nothing(sink: JdbcSink) -> None:
    tables = [definition([ID, TEXT], tenant=name) for name in ("shared_a", "shared_b")]
    for number, table in enumerate(tables):
        sink.prepare(table, known(table))
        sink.write(Work(table, [rows(table, [(1, f"of {number}", 1, False)])]))
    assert [stored(sink, table) for table in tables] == [{1: ("of 0", 1)}, {1: ("of 1", 1)}]


ADDED: list[tuple[Any, Any, Any]] = [
    ("string", 'it\'s \\ "so"', 'it\'s \\ "so"'),
    ("bytes", "a'b", b"a'b"),
    ("boolean", True, True),
    ("int", -7, -7),
    ("double", 0.1, 0.1),
    ({"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}, "1.50", Decimal("1.50")),
    ({"type": "int", "logicalType": "date"}, "2024-02-29", date(2024, 2, 29)),
    (
        {"type": "long", "logicalType": "timestamp-micros"},
        "2024-02-29T12:00:00.000001Z",
        datetime(2024, 2, 29, 12, 0, 0, 1),
    ),
    ({"type": "array", "items": "string"}, ["it's"], '["it\'s"]'),
]


def test_rows_that_are_there_take_the_default_of_an_added_column(sink: JdbcSink) -> None:
    first = definition([ID, TEXT])
    sink.prepare(first, known(first))
    sink.write(Work(first, [rows(first, [(1, "a", 1, False)])]))
    more = [{"name": f"added {at}", "type": kind, "default": given} for at, (kind, given, _) in enumerate(ADDED)]
    second = definition([ID, TEXT, *more], tenant=first.tenant, revision=2, previous=first.fingerprint)
    sink.prepare(second, known(first, second))
    (found,) = read_back(sink, second).to_pylist()
    assert [found[f"added {at}"] for at in range(len(ADDED))] == [expected for _, _, expected in ADDED]


@pytest.mark.parametrize(
    ("before", "after", "value", "becomes"),
    [
        ("int", "long", 7, 7),
        ("int", "double", 7, 7.0),
        ("long", "double", 7, 7.0),
        ("float", "double", 1.5, 1.5),
        ("string", "bytes", "größer", "größer".encode()),
        ("bytes", "string", b"klein", "klein"),
    ],
)
def test_columns_are_widened_with_what_they_hold(
    sink: JdbcSink, before: str, after: str, value: Any, becomes: Any
) -> None:
    """Also those of the key, and of the tombstones."""
    versions = {}
    for revision, kind in enumerate((before, after), 1):
        fields = [{"name": "id", "type": "long"}, {"name": "k", "type": kind}, {"name": "v", "type": ["null", kind]}]
        previous = versions[1].fingerprint if revision > 1 else None
        tenant = versions[1].tenant if revision > 1 else None
        versions[revision] = definition(fields, ("k",), tenant, revision=revision, previous=previous)
    first, second = versions[1], versions[2]
    sink.prepare(first, known(first))
    columns = {
        "id": pa.array([1], pa.int64()),
        "k": pa.array([value], arrow_type(first.columns[1])),
        "v": pa.array([value], arrow_type(first.columns[1])),
        "_version": pa.array([5], pa.int64()),
        "_import": pa.array(["imp_1"]),
        "_row": pa.array([1], pa.int64()),
        "_deleted": pa.array([False]),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    sink.write(Work(first, [Rows(("imp_1/0",), (5,), lambda: iter([batch]))]))
    sink.prepare(second, known(first, second))
    (found,) = read_back(sink, second).to_pylist()
    assert (found["k"], found["v"]) == (becomes, becomes)


class Broken(Exception):
    pass


def test_a_change_that_broke_off_goes_on_where_it_was(sink: JdbcSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropping a column and giving its name to another one: done twice, it would take the rows' values with it."""
    first = definition([ID, TEXT, {"name": "old", "type": ["null", "string"]}])
    sink.prepare(first, known(first))
    batch = rows(first, [(1, "kept", 1, False)])
    with_old = [part.append_column("old", pa.array(["gone"])) for part in batch.open()]
    sink.write(Work(first, [Rows(batch.chunks, batch.versions, lambda: iter(with_old))]))
    second = definition([ID, TEXT], tenant=first.tenant, revision=2, previous=first.fingerprint)
    fields = [ID, {"name": "old", "type": ["null", "string"], "aliases": ["text"]}]
    third = definition(fields, tenant=first.tenant, revision=3, previous=second.fingerprint)
    definitions = known(first, second, third)
    for _change in ("drop", "rename", "done", "done with the tombstones"):
        with pytest.raises(Broken), _broken(sink, monkeypatch):
            sink.prepare(third, definitions)
    sink.prepare(third, definitions)
    assert read_back(sink, third).select(["id", "old"]).to_pylist() == [{"id": 1, "old": "kept"}]


@contextmanager
def _broken(sink: JdbcSink, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The link breaks once a table has changed."""
    link = sink._connected()
    run = link.run

    def breaking(statement: str) -> None:
        run(statement)
        if statement.startswith("ALTER"):
            raise Broken

    with monkeypatch.context() as patched:
        patched.setattr(link, "run", breaking)
        yield


def test_a_table_that_is_not_ours_is_left_alone(sink: JdbcSink, mariadb_port: int) -> None:
    table = definition([ID, TEXT], tenant="foreign")
    with pymysql.connect(host="127.0.0.1", port=mariadb_port, user=USER, autocommit=True) as there:
        there.cursor().execute("CREATE DATABASE `lake$foreign`")
        there.cursor().execute("CREATE TABLE `lake$foreign`.notes (precious INT)")
    with pytest.raises(SinkFailed) as met:
        sink.prepare(table, known(table))
    assert sink.classify(met.value) is Fault.TABLE


def test_a_server_without_bulk_load_gets_statements(sink: JdbcSink) -> None:
    link: Any = sink._connected()
    link._takes_files = False
    words = ["it's", 'say "x"', "back\\slash", "nul\x00", "?{%s}", None, "x" * 2_000_000]
    assert written(sink, "string", words) == words
    assert written(sink, "bytes", [b"\x00\xff", b"", None]) == [b"\x00\xff", b"", None]


def test_passwords_are_asked_for_by_reference_and_rights_are_the_table_s_matter(mariadb_port: int) -> None:
    right = opened(target(mariadb_port, user=GUARDED, password="env:X"), lambda reference: PASSWORD)
    with pytest.raises(pymysql.err.OperationalError) as met:
        right.check()
    assert right.classify(met.value) is Fault.TABLE, "it may log in, and may not make databases"
    wrong = opened(target(mariadb_port, user=GUARDED, password="env:X"), lambda reference: "wrong")
    with pytest.raises(pymysql.err.OperationalError) as met:
        wrong.check()
    assert wrong.classify(met.value) is Fault.SINK


def test_a_server_that_does_not_encrypt_is_refused_where_that_is_wished(mariadb_port: int) -> None:
    sink = opened(target(mariadb_port, tls="require"), str)
    with pytest.raises(pymysql.err.OperationalError) as met:
        sink.check()
    assert sink.classify(met.value) is Fault.SINK


def test_a_private_address_is_refused(mariadb_port: int) -> None:
    settings = settings_class("jdbc").of(target(mariadb_port))
    sink = JdbcSink(settings, replace(sink_context(), allowed=()))
    with pytest.raises(Invalid, match="not a public address") as met:
        sink.check()
    assert sink.classify(met.value) is Fault.SINK


@pytest.mark.parametrize(
    "settings",
    [{"host": "a/?user=root"}, {"host": "a:3306,b"}, {"database": "x?allowLocalInfile=true"}, {"driver": "no_such"}],
)
def test_nobody_adds_a_property_to_an_address(settings: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        opened(target(1, **settings), str)


def test_a_server_that_asks_for_our_files_gets_none() -> None:
    """Every statement may be answered by asking for a file; a rogue server would be sent it."""
    with _rogue_server() as (port, received):
        sink = opened(target(port, tls="disable"), str)
        with pytest.raises(SinkFailed, match="asked for a file"):
            sink.check()
    assert b"root:" not in b"".join(received)


@contextmanager
def _rogue_server() -> Iterator[tuple[int, list[bytes]]]:
    received: list[bytes] = []
    greeting = (
        b"\x0a8.0.0\x00" + struct.pack("<I", 1) + b"abcdefgh\x00" + struct.pack("<H", 0xFFFF & ~0x800) + b"\x2d\x02\x00"
        + struct.pack("<H", 0x0008) + b"\x15" + bytes(10) + b"ijklmnopqrst\x00" + b"mysql_native_password\x00"
    )  # fmt: skip
    ok, ask = b"\x00\x00\x00\x02\x00\x00\x00", b"\xfb/etc/passwd"

    def serve(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(10)
            peer.sendall(struct.pack("<I", len(greeting))[:3] + b"\x00" + greeting)
            received.append(peer.recv(65536))
            peer.sendall(struct.pack("<I", len(ok))[:3] + b"\x02" + ok)
            while part := peer.recv(65536):
                received.append(part)
                answer = ask if b"SESSION" in part else ok
                peer.sendall(struct.pack("<I", len(answer))[:3] + b"\x01" + answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1], received
        thread.join(10)


@pytest.fixture
def driver(jars: Callable[[str], list[Path]], monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a driver that the operator registered."""
    registered = {
        "jars": list(map(str, jars("mariadb"))),
        "class_name": "org.mariadb.jdbc.Driver",
        "url": "jdbc:mariadb://{host}:{port}/?allowLocalInfile=false",
        "tls": {"disable": {"sslMode": "disable"}, "verify": {"sslMode": "verify-full"}},
    }
    monkeypatch.setenv("MILLRACE_JDBC__DRIVERS", json.dumps({"connector": registered}))
    return "connector"


@pytest.fixture
def registered(mariadb_port: int, driver: str) -> SinkTarget:
    return target(mariadb_port, driver=driver, tls="disable")


@pytest.mark.parametrize("tls", ["disable", "verify"])
def test_a_registered_driver_is_led_to_no_forbidden_address(
    driver: str, tls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver asks libc, which finds another address than the judge did."""
    monkeypatch.setattr(addresses, "resolve", lambda host: [host if literal(host) is not None else PERMITTED])
    context = replace(sink_context(str), allowed=ALLOWED)
    with a_pair() as (permitted, forbidden):
        asked = target(forbidden.port, host=NAME, driver=driver, tls=tls)
        sink = JdbcSink(JdbcSinkSettings.of(asked), context)
        expected, said = (
            (Invalid, "led from localhost.*not public.*PRIVATE_TARGETS") if tls == "verify" else (JdbcFailed, "connect")
        )
        with pytest.raises(expected, match=said) as met:
            sink.check()
        assert sink.classify(met.value) is Fault.SINK
        assert (permitted.connections > 0, forbidden.connections) == (tls == "disable", 0)


def test_a_driver_that_goes_around_the_checks_is_refused(driver: str) -> None:
    context = sink_context(str)
    login = jdbc_link.Login("127.0.0.1", 1, "u", "", context.permitted)
    _start_jvm()
    with (
        pytest.raises(Invalid, match=r"does not connect by java\.net\.Socket"),
        _routed(context.jdbc_drivers[driver], login),
    ):
        """Nothing asks the platform to connect."""


def test_a_registered_driver_does_all_that_ours_does(registered: SinkTarget) -> None:
    sink = opened(registered, str)
    sink.check()
    table = definition([ID, TEXT])
    sink.prepare(table, known(table))
    sink.write(Work(table, [rows(table, [(1, "it's {fn x} ?", 5, False), (2, "b", 5, False)])]))
    sink.write(Work(table, [rows(table, [(1, "late", 4, False)]), rows(table, [(2, None, 6, True)])]))
    assert stored(sink, table) == {1: ("it's {fn x} ?", 5)}
    assert written(sink, "double", [math.inf, 5e-324, None]) == [math.inf, 5e-324, None]
    assert written(sink, "bytes", [b"\x00'\xff", None]) == [b"\x00'\xff", None]
    assert written(sink, {"type": "array", "items": "long"}, [[1, 2], None]) == ["[1,2]", None]
    with pytest.raises(JdbcFailed) as met:
        written(sink, "string", ["x" * 1000], is_key=True)
    assert sink.classify(met.value) is Fault.ROW
    sink.close()


def test_a_registered_driver_s_server_that_is_away_is_the_sink_s_fault(registered: SinkTarget) -> None:
    sink = opened(SinkTarget("mart", "jdbc", True, {**registered.settings, "port": 1}), str)
    with pytest.raises(JdbcFailed) as met:
        sink.check()
    assert sink.classify(met.value) is Fault.SINK


DRIVER_ERRORS: list[tuple[BaseException, Fault]] = [
    (pymysql.err.DataError(1406, "Data too long"), Fault.ROW),
    (pymysql.err.DataError(1264, "Out of range"), Fault.ROW),
    (pymysql.err.DataError(), Fault.ROW),
    (pymysql.err.IntegrityError(1048, "cannot be null"), Fault.ROW),
    (pymysql.err.IntegrityError(9999, "unheard of"), Fault.ROW),
    (pymysql.err.OperationalError(1366, "Incorrect string value"), Fault.ROW),
    (pymysql.err.OperationalError(4025, "CONSTRAINT failed"), Fault.ROW),
    (pymysql.err.OperationalError(1118, "Row size too large"), Fault.ROW),
    (pymysql.err.ProgrammingError(1146, "no such table"), Fault.TABLE),
    (pymysql.err.ProgrammingError(), Fault.TABLE),
    (pymysql.err.NotSupportedError(1235, "not supported"), Fault.TABLE),
    (pymysql.err.OperationalError(1142, "command denied"), Fault.TABLE),
    (pymysql.err.OperationalError(1044, "access denied to database"), Fault.TABLE),
    (pymysql.err.OperationalError(1045, "access denied"), Fault.SINK),
    (pymysql.err.OperationalError(1290, "read-only"), Fault.SINK),
    (pymysql.err.OperationalError(1114, "table is full"), Fault.SINK),
    (pymysql.err.OperationalError(1021, "disk full"), Fault.SINK),
    (pymysql.err.OperationalError(1205, "lock wait timeout"), Fault.SINK),
    (pymysql.err.OperationalError(1213, "deadlock"), Fault.SINK),
    (pymysql.err.OperationalError(2003, "cannot connect"), Fault.SINK),
    (pymysql.err.OperationalError(2013, "lost connection"), Fault.SINK),
    (pymysql.err.OperationalError(), Fault.SINK),
    (pymysql.err.InternalError(1815, "internal"), Fault.SINK),
    (pymysql.err.InterfaceError(0, "closed"), Fault.SINK),
    (pymysql.err.DatabaseError(1, "other"), Fault.SINK),
    (pymysql.err.Error(), Fault.SINK),
    (JdbcFailed(1406, "22001", "too long"), Fault.ROW),
    (JdbcFailed(0, "22003", "out of range"), Fault.ROW),
    (JdbcFailed(0, "23000", "constraint"), Fault.ROW),
    (JdbcFailed(0, "42S02", "no table"), Fault.TABLE),
    (JdbcFailed(0, "08001", "no connection"), Fault.SINK),
    (JdbcFailed(0, "28000", "who are you"), Fault.SINK),
    (JdbcFailed(0, "40001", "deadlock"), Fault.SINK),
    (JdbcFailed(0, "", "a driver's bug"), Fault.SINK),
    (Invalid("a key is not a number"), Fault.ROW),
    (Invalid("private", code="private_target"), Fault.SINK),
    (Unavailable("unresolved"), Fault.SINK),
    (ConnectionResetError(), Fault.SINK),
    (TimeoutError(), Fault.SINK),
    (KeyError("a bug of ours"), Fault.TABLE),
]


@pytest.mark.parametrize(("error", "fault"), DRIVER_ERRORS, ids=lambda value: str(value)[:40])
def test_every_error_of_a_driver_has_a_reach(error: BaseException, fault: Fault) -> None:
    assert opened(target(1), str).classify(error) is fault


def test_no_class_of_the_driver_s_errors_is_forgotten() -> None:
    fed = {type(error) for error, _ in DRIVER_ERRORS}
    concrete = {
        kind for kind in vars(pymysql.err).values() if isinstance(kind, type) and issubclass(kind, pymysql.err.Error)
    }
    assert concrete <= fed


def test_a_connection_that_is_cut_is_made_again(sink: JdbcSink, mariadb_port: int) -> None:
    table = definition([ID, TEXT])
    sink.prepare(table, known(table))
    number = sink._connected().ask("SELECT CONNECTION_ID()")[0][0]
    with pymysql.connect(host="127.0.0.1", port=mariadb_port, user=USER) as there:
        there.cursor().execute(f"KILL {number}")
    with pytest.raises(pymysql.err.OperationalError) as met:
        sink.write(Work(table, [rows(table, [(1, "a", 1, False)])]))
    assert sink.classify(met.value) is Fault.SINK
    sink.prepare(table, known(table))
    sink.write(Work(table, [rows(table, [(1, "a", 1, False)])]))
    assert stored(sink, table) == {1: ("a", 1)}


def test_a_server_that_only_reads_is_the_sink_s_fault(sink: JdbcSink, mariadb_port: int) -> None:
    table = definition([ID, TEXT])
    sink.prepare(table, known(table))
    with pymysql.connect(host="127.0.0.1", port=mariadb_port, user=ADMINISTRATOR, autocommit=True) as there:
        there.cursor().execute("SET GLOBAL read_only = 1")
        try:
            with pytest.raises(pymysql.err.OperationalError) as met:
                sink.write(Work(table, [rows(table, [(1, "a", 1, False)])]))
        finally:
            there.cursor().execute("SET GLOBAL read_only = 0")
    assert sink.classify(met.value) is Fault.SINK


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jdbc_link, "CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sink = opened(target(silent.getsockname()[1]), str)
        with pytest.raises(pymysql.err.OperationalError) as met:
            sink.check()
    assert sink.classify(met.value) is Fault.SINK
