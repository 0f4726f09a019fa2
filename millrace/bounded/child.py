"""Starts bounded processes: a function's name and a job in, a connection to the process that works on it out.

The function bounds itself (`limits.py`) before it touches what others wrote. Its answers are bytes: nothing that it sends is
unpickled here."""

import atexit
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from millrace.bounded.nursery import CODE

# A process that has closed its connection is over soon.
END_SECONDS = 5.0
START_SECONDS = 60.0
# A nursery that nobody asked to stay ends after this time without work.
IDLE_SECONDS = 60.0
# What Python and Arrow need, and nothing else: the environment may hold secrets. The allocator takes only what is asked for,
# so that a bound of the memory bounds what a file makes it take.
_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class Nursery:
    """The process from which others are forked, started when it is needed and again if it is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._modules: tuple[str, ...] = ()
        self._idle_seconds = IDLE_SECONDS

    def prepare(self, modules: Sequence[str]) -> None:
        """From now on it stays, with these modules imported."""
        with self._lock:
            self._modules, self._idle_seconds = tuple(modules), 0.0
            self._stop()
            self._start(*modules)

    def fork(self, function: str) -> tuple[Connection, socket.socket, int]:
        """A connection to a new process, where its end is told, and its handle."""
        with self._lock:
            for _ in range(2):
                if self._control is None or self._owner != os.getpid():
                    self._start(function.partition(":")[0])
                with suppress(OSError):
                    return self._asked(function)
                self._stop()
        raise OSError(f"No process can be started for {function}.")

    def _asked(self, function: str) -> tuple[Connection, socket.socket, int]:
        assert self._control is not None
        ours, theirs = socket.socketpair()
        told, telling = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, telling:
                socket.send_fds(self._control, [function.encode()], [theirs.fileno(), telling.fileno()])
            told.settimeout(START_SECONDS)
            _, handles, _, _ = socket.recv_fds(told, 1, 1)
            if not handles:
                raise OSError("The process was not started.")
            return Connection(ours.detach()), told, handles[0]
        except BaseException:
            ours.close()
            told.close()
            raise

    def _start(self, *modules: str) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._owner = os.getpid()
        path = {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
        with theirs:
            argv = [sys.executable, "-S", "-P", "-m", "millrace.bounded.nursery"]
            self._process = subprocess.Popen(
                [*argv, str(theirs.fileno()), str(self._idle_seconds), *(self._modules or modules)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=os.sep,
                env={**_ENVIRONMENT, **path},
            )
        # So that it is no zombie when it has ended by itself.
        threading.Thread(target=self._process.wait, name="nursery", daemon=True).start()

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None and self._owner == os.getpid():
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._control = self._process = None

    def close(self) -> None:
        with self._lock:
            self._stop()


NURSERY = Nursery()
atexit.register(NURSERY.close)


class BoundedChild:
    """One running process. `end` is due."""

    def __init__(self, function: str, job: Any) -> None:
        """`function` is `module:name`; it is called with a connection and the job."""
        self.link, self._told, self._handle = NURSERY.fork(function)
        with suppress(BrokenPipeError, ConnectionResetError):
            self.link.send_bytes(pickle.dumps(job))

    def ended(self) -> int | None:
        """What it ended with, after it closed its connection; None if it must be killed first."""
        self._told.settimeout(END_SECONDS)
        with suppress(OSError):
            told = self._told.recv(CODE.size)
            return int(CODE.unpack(told)[0]) if len(told) == CODE.size else None
        return None

    def end(self) -> None:
        """Kills it if it still runs."""
        with suppress(OSError):
            self.link.close()
        with suppress(OSError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        self._told.close()
        os.close(self._handle)
