"""Services that tests share, started when the first test asks for them and stopped at the end."""

import faulthandler
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.embed.broker import Broker
from tests.support.broker import open_broker
from tests.support.coverage_report import current_report
from tests.support.examples import register_profiles
from tests.support.jar_sets import jar_files
from tests.support.postgres import postgres

# A thread that a failed test left behind must not keep the run from ending.
EXIT_SECONDS = 60.0

register_profiles()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Somebody else's broker, which asks for no password; tests that share it name their topics apart."""
    with open_broker(tmp_path_factory.mktemp("kafka")) as broker:
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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.support.shares import Shares  # noqa: PLC0415 (only with pytest-xdist)

    return Shares(config, log)


def pytest_unconfigure(config: pytest.Config) -> None:
    # A process of `pytest -n` waits here for the others, and is ended by the one that started it.
    if not hasattr(config, "workerinput"):
        faulthandler.dump_traceback_later(EXIT_SECONDS, exit=True, file=sys.__stderr__)
