"""Services that tests share, started when the first test asks for them and stopped at the end."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millrace.embed.broker import Broker
from millrace.embed.jars import jar_files
from tests.support.coverage_report import current_report
from tests.support.postgres import postgres


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker; tests that share it name their topics apart."""
    with Broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    """An empty PostgreSQL database; tests that share it name their schemas apart."""
    with postgres() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def jars() -> Callable[[str], list[Path]]:
    """The jar files of a set: kafka, spark or delta."""
    return jar_files


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    report = current_report()
    if report:
        terminalreporter.section("coverage")
        terminalreporter.write_line(report)
