"""Which drivers exist: ours for MariaDB and MySQL, and those that the operator registered by name."""

from collections.abc import Callable, Mapping

from millrace.model.errors import Invalid
from millrace.settings import JdbcDriver
from millrace.sink.jdbc.link import Link, Login, MysqlLink
from millrace.sink.jdbc.settings import DEFAULT_DRIVER

Opener = Callable[[Login], Link]


def opener(name: str, registered: Mapping[str, JdbcDriver]) -> Opener:
    if name == DEFAULT_DRIVER:
        return MysqlLink
    driver = registered.get(name)
    if driver is None:
        known = ", ".join([DEFAULT_DRIVER, *registered])
        raise Invalid(f"There is no JDBC driver {name!r:.60}.", remedy=f"Choose one of: {known}.", code="bad_sink")
    # The JVM is loaded only where the operator registered a driver for it.
    from millrace.sink.jdbc.jvm import JvmLink  # noqa: PLC0415

    return lambda login: JvmLink(driver, login)
