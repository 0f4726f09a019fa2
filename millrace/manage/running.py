"""A tenant's program as a process: an order in, output into its logs, an exit code out; it dies with the manager."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from millrace.manage.confinement import launcher
from millrace.manage.logs import Pump
from millrace.seal.cipher import Seal
from millrace.staging.runs import RunFolder

# Between the request to end and the end by force.
STOP_SECONDS = 10.0
PUMP_SECONDS = 2.0


class AppReplicas:
    """The processes of one run, which ends with the last of them."""

    def __init__(self, processes: Sequence["AppProcess"]) -> None:
        self._processes = processes
        # A process that has ended is not asked again: its number may be another one's by then.
        self._codes: dict[int, int] = {}

    @property
    def is_stopping(self) -> bool:
        return any(process.is_stopping for process in self._processes)

    def poll(self) -> int | None:
        """When all have ended: 0 if all did well, else the code of the first that did not."""
        for number, process in enumerate(self._processes):
            if number not in self._codes and (code := process.poll()) is not None:
                self._codes[number] = code
        if len(self._codes) < len(self._processes):
            return None
        return next((code for _, code in sorted(self._codes.items()) if code != 0), 0)

    def stop(self) -> bool:
        """Asks all of them."""
        asked = [process.stop() for number, process in enumerate(self._processes) if number not in self._codes]
        return any(asked)

    def kill(self) -> None:
        for number, process in enumerate(self._processes):
            if number not in self._codes:
                process.kill()


def _log_name(name: str, replica: int) -> str:
    return f"{name}-{replica}.log" if replica else f"{name}.log"


class AppProcess:
    """The thread that makes it must outlive it."""

    def __init__(self, folder: RunFolder, order: dict[str, Any], seal: Seal | None = None, replica: int = 0) -> None:
        logs = folder.path if seal is None else folder.sealed
        logs.mkdir(parents=True, exist_ok=True)
        pipes = {name: os.pipe() for name in ("stdout", "stderr")}
        self._process = subprocess.Popen(
            launcher(),
            stdin=subprocess.PIPE,
            stdout=pipes["stdout"][1],
            stderr=pipes["stderr"][1],
            start_new_session=True,
            # Its processes can be looked at by the program: nothing of the platform's surroundings goes with them.
            env={},
        )
        self._pumps = []
        for name, (reading, writing) in pipes.items():
            os.close(writing)
            self._pumps.append(Pump(reading, logs / _log_name(name, replica), seal))
            self._pumps[-1].start()
        self._kill_at: float | None = None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(json.dumps(order).encode())

    @property
    def is_stopping(self) -> bool:
        return self._kill_at is not None

    def poll(self) -> int | None:
        """Its exit code once it has ended and all it said is written down; negative for a signal."""
        if self._process.poll() is None:
            if self._kill_at is not None and time.monotonic() > self._kill_at:
                self.kill()
            return None
        # What it started and left behind, where it has no world of its own that ends with it.
        self.kill()
        for pump in self._pumps:
            pump.join(PUMP_SECONDS)
        code = int(self._process.returncode)
        return 128 - code if code > 128 else code

    def stop(self) -> bool:
        """Asks it to end; if it does not, `poll` ends it by force. False if it had ended by itself, or was asked before."""
        if self._kill_at is not None or self._process.poll() is not None:
            return False
        self._kill_at = time.monotonic() + STOP_SECONDS
        self._process.send_signal(signal.SIGTERM)
        return True

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
