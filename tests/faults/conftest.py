"""One platform for all tests that break it: they name their tenants apart."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.platform import RunningPlatform, running_platform


@pytest.fixture(scope="package")
def failpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in this folder arms the failpoint of its name."""
    return tmp_path_factory.mktemp("failpoints")


@pytest.fixture(scope="package")
def platform(tmp_path_factory: pytest.TempPathFactory, failpoints: Path) -> Iterator[RunningPlatform]:
    with running_platform(
        tmp_path_factory.mktemp("faulty"),
        MILLRACE_FAILPOINTS=str(failpoints),
        MILLRACE_POISON="kills the worker",
    ) as started:
        yield started
