"""Which drivers there are: ours for MariaDB and MySQL, and those that the operator registered by name.

A tenant names a driver, a host, a port and a database; what goes into an address is checked letter by letter, so that nobody
can add a property to it."""

import re
from collections.abc import Callable
from functools import cache

from millrace.model.errors import Invalid
from millrace.settings import Settings
from millrace.sink.jdbc.link import Link, Login, MysqlLink

DEFAULT_DRIVER = "mariadb"
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+:[0-9A-Fa-f:.]*", re.ASCII)
_DATABASE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}", re.ASCII)

Opener = Callable[[Login], Link]


def checked_host(host: str) -> str:
    if not _HOST.fullmatch(host):
        raise Invalid(
            f"{host!r:.60} is not a host.", remedy="Give a name or an address, without a port.", code="bad_sink"
        )
    return host


def checked_database(name: str) -> str:
    if not _DATABASE.fullmatch(name):
        raise Invalid(
            f"{name!r:.60} cannot name databases.",
            remedy="Use 1 to 31 letters, digits, '_' or '-', beginning with a letter.",
            code="bad_sink",
        )
    return name


def opener(name: str) -> Opener:
    if name == DEFAULT_DRIVER:
        return MysqlLink
    found = registered().jdbc.drivers.get(name)
    if found is None:
        known = ", ".join([DEFAULT_DRIVER, *registered().jdbc.drivers])
        raise Invalid(f"There is no JDBC driver {name!r:.60}.", remedy=f"Choose one of: {known}.", code="bad_sink")
    # The JVM is asked for only where somebody registered something for it.
    from millrace.sink.jdbc.jvm import JvmLink  # noqa: PLC0415

    driver = found
    return lambda login: JvmLink(driver, login)


@cache
def registered() -> Settings:
    return Settings()
