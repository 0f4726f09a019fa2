"""Every error of every driver has a reach: a row, the table or the target; and servers that are down, slow, full or
read-only are the target's fault."""

import inspect
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import cassandra
import cassandra.cluster
import cassandra.connection
import cassandra.protocol
import psycopg
import psycopg.errors
import pyarrow as pa
import pytest

from millrace.credentials.secrets import Secrets
from millrace.deliver.budget import TimeIsUp, within
from millrace.deliver.probe import probe
from millrace.model.errors import Invalid, Unavailable
from millrace.model.sinks import Fault, SinkFailed, SinkTarget
from millrace.sink.connector import Connector, Work
from millrace.sink.registry import OURS, connector_class
from tests.sinks.conftest import postgres_target
from tests.sinks.test_contract import ID, TEXT, definition, known, rows
from tests.support.reading_back import read_back
from tests.support.sink_context import open_target, sink_context

UNMADE = object()
# What any driver may raise besides its own: the network's, Arrow's, ours, and what nobody thought of.
COMMON: list[BaseException] = [
    ConnectionResetError("gone"), TimeoutError("slow"), OSError("disk"), MemoryError(), RuntimeError("?"), KeyError("?"),
    pa.ArrowInvalid("bad"), pa.ArrowNotImplementedError("?"), UnicodeError("?"), AssertionError("?"),
    SinkFailed("x", Fault.TABLE), TimeIsUp("late", Fault.SINK), Invalid("x"), Unavailable("x"),
]  # fmt: skip


def made(kind: type[BaseException]) -> Any:
    """An instance, whatever its constructor asks for."""
    try:
        instance = kind.__new__(kind)
        instance.args = ("made for a test",)
        return instance
    except TypeError:
        return UNMADE


def error_classes(*modules: ModuleType) -> list[type[BaseException]]:
    found = {
        one
        for module in modules
        for _, one in inspect.getmembers(module, inspect.isclass)
        if issubclass(one, Exception) and one.__module__.split(".")[0] in ("psycopg", "cassandra")
    }
    return sorted(found, key=lambda one: one.__qualname__)


DRIVERS = {
    "postgres": error_classes(psycopg, psycopg.errors),
    "cassandra": error_classes(cassandra, cassandra.cluster, cassandra.connection, cassandra.protocol),
}


def classifier(kind: str) -> Any:
    """Classifying needs no connection."""
    sink_type = connector_class(kind)
    return sink_type.__new__(sink_type).classify


@pytest.mark.parametrize("kind", list(DRIVERS))
def test_no_error_of_a_driver_is_unknown(kind: str) -> None:
    classes = DRIVERS[kind]
    assert len(classes) > 20
    for one in classes:
        error = made(one)
        if error is not UNMADE:
            assert isinstance(classifier(kind)(error), Fault), one


@pytest.mark.parametrize("kind", sorted(OURS))
def test_every_sink_has_a_word_for_what_nobody_expected(kind: str) -> None:
    for error in COMMON:
        fault = classifier(kind)(error)
        assert isinstance(fault, Fault), error
        if isinstance(error, ConnectionError | TimeoutError | TimeIsUp | Unavailable):
            assert fault is Fault.SINK, f"{kind}: {error!r}"
        if isinstance(error, MemoryError | RuntimeError | KeyError | AssertionError):
            assert fault is not Fault.ROW, f"{kind}: a broken system is not a bad row: {error!r}"


@pytest.mark.parametrize(
    ("kind", "error", "fault"),
    [
        ("postgres", psycopg.errors.NumericValueOutOfRange, Fault.ROW),
        ("postgres", psycopg.errors.CheckViolation, Fault.ROW),
        ("postgres", psycopg.errors.UndefinedTable, Fault.TABLE),
        ("postgres", psycopg.errors.InsufficientPrivilege, Fault.TABLE),
        ("postgres", psycopg.errors.DiskFull, Fault.SINK),
        ("postgres", psycopg.errors.TooManyConnections, Fault.SINK),
        ("postgres", psycopg.errors.ReadOnlySqlTransaction, Fault.SINK),
        ("postgres", psycopg.errors.AdminShutdown, Fault.SINK),
        ("postgres", psycopg.errors.InvalidPassword, Fault.SINK),
        ("cassandra", cassandra.WriteTimeout, Fault.SINK),
        ("cassandra", cassandra.Unavailable, Fault.SINK),
        ("cassandra", cassandra.protocol.OverloadedErrorMessage, Fault.SINK),
        ("cassandra", cassandra.InvalidRequest, Fault.ROW),
        ("cassandra", cassandra.AlreadyExists, Fault.TABLE),
        ("cassandra", cassandra.Unauthorized, Fault.TABLE),
        ("cassandra", cassandra.connection.ConnectionShutdown, Fault.SINK),
    ],
)
def test_the_reach_of_some_errors_is_this(kind: str, error: type[BaseException], fault: Fault) -> None:
    assert classifier(kind)(made(error)) is fault


@contextmanager
def silent_server() -> Iterator[int]:
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=8) as server:
        yield server.getsockname()[1]


def test_a_server_that_hangs_is_given_up_in_time() -> None:
    with silent_server() as port:
        settings = {"host": "127.0.0.1", "port": port, "database": "d", "user": "u"}
        sink = open_target(SinkTarget("w", "postgres", True, settings))
        with pytest.raises(TimeIsUp) as late, within(0.5):
            sink.check()
    assert sink.classify(late.value) is Fault.SINK


def test_a_full_disk_and_a_read_only_server_are_the_target_s_fault(
    postgres_dsn: str, request: pytest.FixtureRequest
) -> None:
    sink = open_target(postgres_target(request))
    table = definition([ID, TEXT])
    sink.prepare(table, known(table))
    place = f'"{table.tenant}".notes'
    with psycopg.connect(postgres_dsn, autocommit=True) as admin:
        admin.execute(
            "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END$$"
        )
        admin.execute(f"CREATE TRIGGER full_disk BEFORE INSERT ON {place} EXECUTE FUNCTION no_room()")
        assert met(sink, table) is Fault.SINK
        admin.execute(f"DROP TRIGGER full_disk ON {place}")
        admin.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
        sink.close()
        assert met(sink, table) is Fault.SINK
        admin.execute("SET default_transaction_read_only = off")
        admin.execute("ALTER DATABASE postgres RESET default_transaction_read_only")
        sink.close()
    sink.write(Work(table, [rows(table, [(1, "fine again", 99, False)])]))
    assert read_back(sink, table)["text"].to_pylist() == ["fine again"]
    sink.close()


def met(sink: Connector, table: Any) -> Fault:
    with pytest.raises(psycopg.Error) as error:
        sink.write(Work(table, [rows(table, [(1, "a", 5, False)])]))
    return sink.classify(error.value)


def test_a_check_says_what_is_wrong_with_whom(postgres_dsn: str, request: pytest.FixtureRequest) -> None:
    target = postgres_target(request)
    assert probe(target, sink_context(Secrets().read_operators)) is None

    def with_settings(**more: Any) -> SinkTarget:
        return SinkTarget("warehouse", "postgres", True, {**target.settings, **more})

    with psycopg.connect(postgres_dsn, autocommit=True) as admin:
        admin.execute("CREATE ROLE reader LOGIN")
    for wrong, said in (
        ({"database": "nowhere"}, "nowhere"),
        ({"user": "nobody"}, "nobody"),
        ({"user": "reader"}, "denied"),
    ):
        with pytest.raises(Invalid, match=rf"Sink 'warehouse' \(postgres\) does not take rows:.*{said}"):
            probe(with_settings(**wrong), sink_context(Secrets().read_operators))
    away = probe(with_settings(port=1), sink_context(Secrets().read_operators))
    assert away is not None
    assert "is away" in away
    with pytest.raises(Invalid, match="MILLRACE_SECRET_NOT_SET"):
        probe(with_settings(password="env:MILLRACE_SECRET_NOT_SET"), sink_context(Secrets().read_operators))
