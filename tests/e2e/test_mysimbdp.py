"""The demo of seed 002 as its author meant it, as a newcomer runs it: uploads, staging, scheduled runs, CQL, logs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_demo_of_seed_002_adds_up(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "millrace.cli.main",
        "--home",
        str(tmp_path / "home"),
        "demo",
        "--mysimbdp",
        "--once",
    ]
    done = subprocess.run(command, env={**os.environ}, capture_output=True, text=True, timeout=290, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every number adds up." in done.stdout
    for said in ("staged", "in the staging directory: onu-1.csv", "schedule  ", "CQL: ", "handed on reviews-1.csv"):
        assert said in done.stdout, said
