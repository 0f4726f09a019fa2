"""An engine in a process of its own, started once and asked many times."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from millrace.embed.jars import cache_folder
from millrace.embed.java import find_java
from tests.interop.serving import MARK
from tests.support.jar_sets import jar_files
from tests.support.processes import end, leashed

ROOT = Path(__file__).parents[2]
ANSWER_SECONDS = 180.0
EXIT_SECONDS = 20.0


class EngineError(Exception):
    """What the engine said when it refused or failed."""


class Engine:
    """Safe to share between threads: one request at a time."""

    def __init__(self, python: Path, module: str, *arguments: str, log: Path) -> None:
        argv = [str(python), "-m", module, *arguments]
        environ = {**os.environ, "TZ": "UTC", "PYTHONPATH": str(ROOT), "JAVA_HOME": str(find_java().home)}
        environ.pop("SPARK_HOME", None)
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                leashed(argv), env=environ, cwd=log.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        self._log = log
        self._lock = threading.Lock()
        self._version: str | None = None

    @property
    def version(self) -> str:
        with self._lock:
            self._greet()
            return str(self._version)

    def ask(self, do: str, **request: Any) -> Any:
        with self._lock:
            self._greet()
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
            self._process.stdin.flush()
            return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        end(self._process, EXIT_SECONDS)

    def _greet(self) -> None:
        if self._version is None:
            self._version = self._answer()["version"]

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        late = threading.Timer(ANSWER_SECONDS, self._process.kill)
        late.start()
        try:
            for raw in self._process.stdout:
                line = raw.decode()
                if line.startswith(MARK):
                    answer = json.loads(line[len(MARK) :])
                    if "error" in answer:
                        raise EngineError(answer["error"])
                    return answer["done"]
        finally:
            late.cancel()
        raise RuntimeError(f"the engine ended: {self._log.read_text()[-2000:]}")


def spark4(folder: Path) -> Engine:
    jars = ",".join(map(str, jar_files("delta")))
    return Engine(Path(sys.executable), "tests.interop.spark_engine", jars, log=folder / "spark4.log")


def spark35(folder: Path) -> Engine:
    jars = ",".join(map(str, jar_files("delta33")))
    return Engine(_python("spark35"), "tests.interop.spark_engine", jars, log=folder / "spark35.log")


def duckdb(folder: Path) -> Engine:
    return Engine(_python("duckdb-delta"), "tests.interop.duckdb_engine", log=folder / "duckdb.log")


def _python(environment: str) -> Path:
    python = cache_folder() / environment / "bin" / "python"
    assert python.exists(), f"{python} is missing: run `scripts/setup duckdb_delta spark35`."
    return python
