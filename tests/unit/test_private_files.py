"""What other users of the machine may read of a home, and what gets into its logs."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.exchange.home import Home
from millrace.exchange.mailboxes import open_exchange
from millrace.store.engine import ControlStore
from tests.support.fake_platform import fake_platform
from tests.support.whole_app import whole_app


@pytest.fixture(autouse=True)
def generous_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_control_store_is_its_user_s_alone(tmp_path: Path) -> None:
    path = tmp_path / "control.db"
    store = ControlStore(f"sqlite:///{path}")
    files = [path, *tmp_path.glob("control.db-*")]
    assert len(files) == 3, "also what SQLite keeps beside it"
    assert {mode(file) for file in files} == {0o600}
    for file in files:
        file.chmod(0o644)
    again = ControlStore(f"sqlite:///{path}")
    assert {mode(file) for file in files} == {0o600}, "one of an earlier release too"
    again.close()
    store.close()


def test_no_other_user_reads_rows_keys_logs_or_messages_of_a_home(tmp_path: Path) -> None:
    with whole_app(tmp_path / "home"):
        open_to_others = [path.name for path in (tmp_path / "home").iterdir() if mode(path) & 0o007]
        # Programs of tenants pass through `sources`, with users of their own.
        assert set(open_to_others) <= {"sources", "programs"}


def test_folders_of_an_earlier_release_are_closed_to_others_and_stay_open_to_their_group(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.lake.mkdir(mode=0o755)
    home.lake.chmod(0o775)
    open_exchange(tmp_path)
    assert mode(home.lake) == 0o770
    assert mode(home.broker) == 0o700


def test_addresses_that_are_asked_are_not_logged() -> None:
    """Some servers want a secret in the address, as WebHDFS wants its delegation token."""
    with fake_platform() as platform:
        code = (
            "import sys, httpx2, millrace.observe as o; o.log_to_stderr();"
            f"httpx2.get('{platform.url}/webhdfs/v1/?delegation=hush'); o.log('done')"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert '"event":"done"' in ran.stderr
    assert "hush" not in ran.stderr
