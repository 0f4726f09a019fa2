"""The demo from a fresh clone with package caches warm, as `make demo ONCE=1` runs it."""

import subprocess
import tempfile
import time
from pathlib import Path

from bench.data import REPOSITORY
from bench.figure import Figure, at_most
from bench.platform import BUILD


def run() -> list[Figure]:
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-clone-", dir=BUILD) as folder:
        clone = Path(folder) / "millrace"
        subprocess.run(["git", "clone", "--quiet", REPOSITORY, clone], check=True, timeout=300)
        begun = time.perf_counter()
        # Not `make demo`: its turn on the machine is already taken by the make that runs this bench.
        subprocess.run(["make", "setup"], cwd=clone, check=True, capture_output=True, timeout=1800)
        subprocess.run(
            [clone / ".venv/bin/millrace", "demo", "--once"], cwd=clone, check=True, capture_output=True, timeout=1800
        )
        return [at_most("demo", time.perf_counter() - begun, "s", 180.0)]
