"""Spark with Delta as another writer, in a process of its own: an operation in, a commit of its own out."""

import json
import os
import subprocess
import sys
from pathlib import Path

from checker.foreign.operations import (
    APPEND,
    DELETE,
    FIRST_KEY,
    GIVEN_EVERY,
    GIVEN_REST,
    MERGE,
    OPTIMIZE,
    TAKE,
    TOUCH,
    TOUCHED_EVERY,
    UPDATE,
    VACUUM,
    Operation,
    Rows,
    named_by_key,
)

MARK = b"\x1eanswer "
HOURS = 168
NAMES = "k, w, v1, v2, v3, h"
GIVEN = ", ".join(f"s.{name}" for name in NAMES.split(", "))
EXIT_SECONDS = 30.0


class SparkWriter:
    """It is started with the first operation."""

    name = "spark"

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def do(self, location: Path, operation: Operation) -> None:
        self._ask({"statement": statement(location, operation)})

    def close(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(EXIT_SECONDS)

    def _ask(self, request: dict[str, str]) -> None:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith(MARK):
                answer = json.loads(line[len(MARK) :])
                if answer:
                    raise RuntimeError(answer)
                return
        raise RuntimeError(f"Spark ended: {self._log.read_text()[-1000:]}")

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            argv = [sys.executable, "-m", "checker.foreign.spark_process", _jars()]
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env={**os.environ, "TZ": "UTC"}
                )
        return self._process


def statement(location: Path, operation: Operation) -> str:
    table, keys = f"delta.`{location}`", ", ".join(map(str, operation.keys or operation.rows))
    given = f"k % {GIVEN_EVERY} = {GIVEN_REST} AND k < {FIRST_KEY}"
    return {
        OPTIMIZE: f"OPTIMIZE {table}",
        VACUUM: f"VACUUM {table} RETAIN {HOURS} HOURS",
        TOUCH: f"UPDATE {table} SET v2 = v2 WHERE k % {TOUCHED_EVERY} = {operation.rest} AND k < {FIRST_KEY}",
        APPEND: f"INSERT INTO {table} ({NAMES}) {_rows(operation.rows)}",
        MERGE: f"MERGE INTO {table} t USING ({_rows(operation.rows)}) s ON t.k = s.k "
        f"WHEN MATCHED THEN UPDATE SET w = s.w WHEN NOT MATCHED THEN INSERT ({NAMES}) VALUES ({GIVEN})",
        UPDATE: f"UPDATE {table} SET w = {named_by_key(operation.rows)} WHERE k IN ({keys})",
        TAKE: f"DELETE FROM {table} WHERE k IN ({keys})",
        DELETE: f"DELETE FROM {table} WHERE {given}",
    }[operation.kind]


def _rows(rows: Rows) -> str:
    values = ", ".join(f"({key}L, '{named}')" for key, named in rows.items())
    return f"SELECT k, w, 1 AS v1, '0' AS v2, 0.5D AS v3, 0L AS h FROM VALUES {values} AS given(k, w)"


def _jars() -> str:
    """The jars of Delta that the tests of readers use, brought onto this machine if they are missing."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.support.jar_sets", "delta"],
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    return ",".join(map(str, sorted(Path(found.stdout.strip()).glob("*.jar"))))
