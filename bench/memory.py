"""Peak resident memory of every process of a platform, sampled while a block runs, by the part it plays."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from bench.figure import Figure, at_most

SAMPLE_SECONDS = 0.1
# What one process of each part may take. JVMs: heap, direct memory and ~300 MB of code, metaspace and threads.
BOUNDS_MB = {
    "server": 300,
    "broker": 1000,
    "spark_jvm": 1600,
    "data_plane": 500,
    "python_worker": 600,
    "supervisor": 200,
    "managers": 150,
}


def _held(process: psutil.Process, part: str) -> float:
    """Resident bytes; of the data plane without the key files it maps, which are the page cache's and not its own."""
    memory = process.memory_info()
    return float(memory.rss - memory.shared if part == "data_plane" else memory.rss)


class Peaks:
    """The largest process of each part so far, in MB."""

    def __init__(self, root: int) -> None:
        self._root = psutil.Process(root)
        self._ended = threading.Event()
        self._mb: dict[str, float] = {}

    def sample(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            with suppress(psutil.Error):
                for process in (self._root, *self._root.children(recursive=True)):
                    self._note(process)

    def _note(self, process: psutil.Process) -> None:
        with suppress(psutil.Error):
            part = _part(process, self._root.pid)
            self._mb[part] = max(self._mb.get(part, 0.0), _held(process, part) / 1e6)

    def stop(self) -> None:
        self._ended.set()

    def __getitem__(self, part: str) -> float:
        return self._mb[part]

    def figures(self, name: str) -> list[Figure]:
        """The server's under the bench's own name, each other's behind a dot."""
        parts = sorted(self._mb, key=lambda part: (part != "server", part))
        return [
            at_most(name if part == "server" else f"{name}.{part}", self._mb[part], "MB", BOUNDS_MB.get(part, 200))
            for part in parts
        ]


@contextmanager
def peak_memory(root: int) -> Iterator[Peaks]:
    peaks = Peaks(root)
    thread = threading.Thread(target=peaks.sample, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        peaks.stop()
        thread.join(30)


def _part(process: psutil.Process, root: int) -> str:
    if process.pid == root:
        return "supervisor"
    line = " ".join(process.cmdline())
    # By the program, not the name: a JVM that is about to run a command is, for a moment, two processes with one memory,
    # and the second is named after a thread.
    if os.path.basename(process.exe()) == "java":
        return "broker" if "kafka.Kafka" in line else "spark_jvm"
    if "millrace.api" in line:
        return "server"
    if "daemon" in line or "worker" in line:
        return "python_worker"
    if "millrace.manage" in line:
        return "managers"
    return "data_plane" if "millrace.plane" in line else "other"
