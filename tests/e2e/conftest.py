"""One platform for all end-to-end tests: they name their tenants apart."""

from collections.abc import Iterator

import pytest

from tests.support.platform import RunningPlatform, running_platform


@pytest.fixture(scope="package")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlatform]:
    with running_platform(
        tmp_path_factory.mktemp("platform"),
        MILLRACE_API__LEASE_SECONDS="3",
        MILLRACE_API__PRIVATE_TARGETS='["127.0.0.0/8"]',
    ) as started:
        yield started
