"""A link through a JDBC driver that the operator registered, in a JVM inside this process.

A row never becomes a Java object: batches are sent as INSERT statements of a megabyte of text, one call each."""

import contextlib
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import jpype

from millrace.embed.java import find_java
from millrace.model.errors import Invalid
from millrace.outbound.addresses import REMEDY
from millrace.outbound.loopback import HOST
from millrace.outbound.socks import socks_server
from millrace.settings import JdbcDriver
from millrace.sink.jdbc import mysql
from millrace.sink.jdbc.faults import JdbcFailed
from millrace.sink.jdbc.link import STATEMENT_SECONDS, Link, Login

HEAP_MB = 128
# What the JVM says when a SOCKS server refuses an address.
_FORBIDDEN = "not allowed by ruleset"
# java.sql.Types
_WHOLE, _FLOATING, _DECIMAL = (-6, 5, 4, -5), (6, 7, 8), (2, 3)
_TRUTH, _BYTES = (-7, 16), (-2, -3, -4, 2004)


class JvmLink(Link):
    def __init__(self, driver: JdbcDriver, login: Login) -> None:
        _start_jvm()
        properties = jpype.JClass("java.util.Properties")()
        given = {"user": login.user, "password": login.password, **_tls(driver, login.tls)}
        for name, value in given.items():
            properties.setProperty(name, value)
        # With `verify` the driver needs the name for the certificate. Otherwise it gets an address that was judged.
        addresses = login.permitted(login.host)
        host = login.host if login.tls == "verify" else addresses[0]
        url = driver.url.format(host=f"[{host}]" if ":" in host else host, port=login.port)
        with _routed(driver, login), _sql_errors():
            self._connection = _driver(driver.jars, driver.class_name).connect(url, properties)
            if self._connection is None:
                raise Invalid(f"The driver {driver.class_name} does not take its own address.", code="bad_driver")
        with _sql_errors():
            self._connection.setAutoCommit(False)
        for statement in mysql.SESSION:
            self.run(statement)

    def run(self, statement: str) -> None:
        with _sql_errors(), self._statement() as made:
            made.execute(statement)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with _sql_errors(), self._statement() as made:
            found = made.executeQuery(statement)
            kinds = [found.getMetaData().getColumnType(at) for at in range(1, found.getMetaData().getColumnCount() + 1)]
            rows = []
            while found.next():
                rows.append(tuple(_cell(found, at, kind) for at, kind in enumerate(kinds, 1)))
            return rows

    def commit(self) -> None:
        with _sql_errors():
            self._connection.commit()

    def close(self) -> None:
        with contextlib.suppress(jpype.JException):
            self._connection.close()

    @property
    def is_open(self) -> bool:
        return not self._connection.isClosed()

    @contextlib.contextmanager
    def _statement(self) -> Iterator[Any]:
        made = self._connection.createStatement()
        try:
            # Braces and question marks in a text must not be read as JDBC escapes.
            made.setEscapeProcessing(False)
            made.setQueryTimeout(STATEMENT_SECONDS)
            yield made
        finally:
            with contextlib.suppress(jpype.JException):
                made.close()


def _tls(driver: JdbcDriver, wish: str) -> dict[str, str]:
    if wish in driver.tls:
        return driver.tls[wish]
    if wish == "prefer":
        return {}
    raise Invalid(f"This driver is not set up for tls: {wish}.", remedy="Ask the operator.", code="bad_sink")


def _cell(found: Any, at: int, kind: int) -> Any:
    if kind in _BYTES:
        raw = found.getBytes(at)
        return None if raw is None else bytes(raw)
    text = found.getString(at)
    if text is None:
        return None
    if kind in _WHOLE:
        return int(str(text))
    if kind in _FLOATING:
        return float(str(text))
    if kind in _TRUTH:
        return bool(found.getBoolean(at))
    return Decimal(str(text)) if kind in _DECIMAL else str(text)


def _start_jvm() -> None:
    """The JVM lives as long as this process and does not touch its signals. A small heap is enough for statements."""
    if not jpype.isJVMStarted():
        library = next(find_java().executable.resolve().parent.parent.rglob("libjvm.so"))
        jpype.startJVM(str(library), "-Xrs", f"-Xmx{HEAP_MB}m", "-XX:+UseSerialGC", convertStrings=False)


@contextlib.contextmanager
def _routed(driver: JdbcDriver, login: Login) -> Iterator[None]:
    """Every java.net.Socket of the JVM is connected by our SOCKS server, which judges where it leads: also if the driver
    resolves the name again, or follows a server that sends it elsewhere."""
    server = socks_server(login.permitted)
    properties = {"socksProxyHost": HOST, "socksProxyPort": str(server.port), "socksNonProxyHosts": ""}
    for name, value in properties.items():
        jpype.JClass("java.lang.System").setProperty(name, value)
    asked = server.asked
    try:
        yield
    except JdbcFailed as failed:
        if _FORBIDDEN in str(failed):
            what = f"The driver was led from {login.host}:{login.port} to an address that is not public."
            raise Invalid(what, remedy=REMEDY, code="private_target") from failed
        raise
    if server.asked == asked:
        what = f"The driver {driver.class_name} does not connect by java.net.Socket, so nobody judges where it connects to."
        raise Invalid(what, remedy="Ask the operator for another driver.", code="bad_driver")


@cache
def _driver(jars: tuple[Path, ...], class_name: str) -> Any:
    """Each registered driver has a class loader of its own: two of them may need different versions of a library."""
    urls = [jpype.JClass("java.io.File")(str(jar)).toURI().toURL() for jar in jars]
    missing = [jar for jar in jars if not jar.is_file()]
    if missing:
        raise Invalid(f"The driver's {missing[0].name} is not there.", remedy="Ask the operator.", code="bad_driver")
    loader = jpype.JClass("java.net.URLClassLoader")(jpype.JArray(jpype.JClass("java.net.URL"))(urls))
    return jpype.JClass("java.lang.Class").forName(class_name, True, loader).getDeclaredConstructor().newInstance()


@contextlib.contextmanager
def _sql_errors() -> Iterator[None]:
    """Translates the driver's exceptions into ours, with the vendor's code and the SQLSTATE if they have them."""
    try:
        yield
    except jpype.JClass("java.sql.SQLException") as error:
        state = str(error.getSQLState() or "")
        raise JdbcFailed(int(error.getErrorCode()), state, str(error.getMessage())) from None
    except jpype.JException as error:
        raise JdbcFailed(0, "", str(error)) from None
