"""An engine in a process of its own, started once and asked many times."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from millrace.embed.jars import cache_folder
from millrace.embed.java import find_java
from tests.interop.serving import HELLO, MARK
from tests.support.jar_sets import jar_files
from tests.support.processes import end, leashed

ROOT = Path(__file__).parents[2]
ANSWER_SECONDS = 180.0
EXIT_SECONDS = 20.0


class EngineError(Exception):
    """What the engine said when it refused or failed."""


class Engine:
    """Safe to share between threads. How many requests it answers at once is its own affair."""

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
        self._hello: Future[Any] = Future()
        self._waiting: dict[int, Future[Any]] = {HELLO: self._hello}
        self._asked = HELLO
        self._thread = threading.Thread(target=self._listen, name=log.stem, daemon=True)
        self._thread.start()

    @property
    def version(self) -> str:
        return str(self._wait(self._hello)["version"])

    def ask(self, do: str, **request: Any) -> Any:
        self._wait(self._hello)
        answer: Future[Any] = Future()
        assert self._process.stdin is not None
        with self._lock:
            self._asked += 1
            self._waiting[self._asked] = answer
            self._process.stdin.write(json.dumps({"do": do, "number": self._asked, **request}).encode() + b"\n")
            self._process.stdin.flush()
        return self._wait(answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        end(self._process, EXIT_SECONDS)
        self._thread.join()

    def _wait(self, answer: "Future[Any]") -> Any:
        try:
            return answer.result(ANSWER_SECONDS)
        except TimeoutError:
            self._process.kill()
            raise

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            line = raw.decode()
            if line.startswith(MARK):
                answer = json.loads(line[len(MARK) :])
                with self._lock:
                    waiting = self._waiting.pop(answer["number"])
                if "error" in answer:
                    waiting.set_exception(EngineError(answer["error"]))
                else:
                    waiting.set_result(answer["done"])
        with self._lock:
            for waiting in self._waiting.values():
                waiting.set_exception(RuntimeError(f"the engine ended: {self._log.read_text()[-2000:]}"))


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
