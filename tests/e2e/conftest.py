"""One platform for all end-to-end tests: they name their tenants apart."""

import json
from collections.abc import Iterator

import pytest

from tests.support.platform import RunningPlatform, running_platform
from tests.support.row_receiver import SECRET
from tests.support.sink_context import SHARED_SECRETS

SPARK_SECRET = "not-for-arguments"


@pytest.fixture(scope="package")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlatform]:
    home = tmp_path_factory.mktemp("platform")
    with running_platform(
        home,
        MILLRACE_FILES_ROOT=str(home / "exports"),
        MILLRACE_API__LEASE_SECONDS="3",
        MILLRACE_API__PRIVATE_TARGETS='["127.0.0.0/8"]',
        MILLRACE_SECRET_TEST_WEBHOOK=SECRET,
        MILLRACE_SECRETS__SHARED=SHARED_SECRETS,
        MILLRACE_SPARK__OPTIONS=json.dumps({"spark.hadoop.fs.s3a.secret.key": SPARK_SECRET}),
    ) as started:
        yield started
