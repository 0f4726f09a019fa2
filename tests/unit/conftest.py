"""Every unit test begins as a platform does whose operator has allowed nothing."""

import pytest

from millrace.sink.addresses import allow


@pytest.fixture(autouse=True)
def no_private_targets() -> None:
    allow([])
