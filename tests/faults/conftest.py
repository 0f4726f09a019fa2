"""A platform of their own for tests that break it."""

from collections.abc import Iterator

import pytest

from tests.support.platform import RunningPlatform, running_platform


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlatform]:
    with running_platform(tmp_path_factory.mktemp("faulty"), MILLRACE_POISON="kills the worker") as started:
        yield started
