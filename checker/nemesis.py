"""Faults against a running platform, in an order that a seed fixes: kills and pauses of each part, while imports are open."""

import itertools
import signal
import threading
import time
from dataclasses import dataclass

import numpy as np
import psutil

from checker.board import Board, Lines
from checker.platform import Platform

KILLED = ("broker", "server", "driver", "worker")
FAULT_IDS = {
    ("broker", "KILL"): "F1", ("server", "KILL"): "F37", ("driver", "KILL"): "F25", ("worker", "KILL"): "F21",
    ("broker", "STOP"): "F5", ("server", "STOP"): "F50", ("driver", "STOP"): "F22", ("worker", "STOP"): "F26",
}  # fmt: skip
HEAL_SECONDS = 90.0
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Fault:
    target: str
    signal: str

    @property
    def id(self) -> str:
        return FAULT_IDS[self.target, self.signal]


def plan(rng: np.random.Generator, kills_each: int, pauses: int) -> list[Fault]:
    """Kills in rounds of all parts, so that a run that ends early has had as many of each; pauses in between."""
    rounds = [[Fault(str(part), "KILL") for part in rng.permutation(KILLED)] for _ in range(kills_each)]
    faults = list(itertools.chain.from_iterable(rounds))
    for _ in range(pauses):
        faults.insert(int(rng.integers(0, len(faults) + 1)), Fault(str(rng.choice(KILLED)), "STOP"))
    return faults


class Nemesis:
    def __init__(self, platform: Platform, board: Board, lines: Lines, seed: int) -> None:
        self._platform, self._board, self._lines = platform, board, lines
        self._rng = np.random.default_rng(seed)

    def run(self, faults: list[Fault], seconds: float) -> None:
        """Spreads the faults over the time. One that is late does not wait; when they fall behind, pauses are left out."""
        begun, step = time.monotonic(), seconds / len(faults)
        for place, fault in enumerate(faults):
            early = begun + step * (place + 0.5) - time.monotonic()
            if self._board.stop.wait(max(0.0, early)):
                return
            if fault.signal == "STOP" and early < -step:
                continue
            # Now and then a fault hits a platform that is still getting up.
            if self._rng.random() < 0.85:
                self._wait_healthy()
            with self._board.peace:
                if not self._board.stop.is_set():
                    self._inflict(fault)

    def heal(self) -> None:
        """Lets everything that was paused go on."""
        for part in (*KILLED, "jvm"):
            for process in self._platform.processes(part):
                _send(process, signal.SIGCONT)
        self._wait_healthy(patient=True)

    def _inflict(self, fault: Fault) -> None:
        victim = self._victim_under_load(fault.target)
        if victim is None:
            return
        process, opened = victim
        said = {
            "fault": fault.id,
            "target": fault.target,
            "signal": fault.signal,
            "pid": process.pid,
            "open": opened[:5],
        }
        struck = {"t_wall": time.time(), "t_mono": time.monotonic()}
        if fault.signal == "KILL":
            done = _send(process, signal.SIGKILL)
        else:
            seconds = float(self._rng.uniform(1.0, 6.0))
            said["seconds"] = round(seconds, 2)
            done = _send(process, signal.SIGSTOP)
            self._board.stop.wait(seconds)
            _send(process, signal.SIGCONT)
        if done:
            self._lines.add({**said, **struck, "healed": time.monotonic()})

    def _victim_under_load(self, part: str) -> tuple[psutil.Process, list[str]] | None:
        """A process of the part, at a moment when an import is open."""
        deadline = time.monotonic() + HEAL_SECONDS
        while time.monotonic() < deadline and not self._board.stop.is_set():
            opened = self._board.open_imports()
            found = self._platform.processes(self._kind(part)) if opened else []
            opened = self._board.open_imports()
            if found and opened:
                return found[int(self._rng.integers(len(found)))], opened
            time.sleep(LOOK_SECONDS)
        return None

    def _kind(self, part: str) -> str:
        """The driver is two processes: Python's, and Spark's JVM."""
        return "jvm" if part == "driver" and self._rng.random() < 0.5 else part

    def _wait_healthy(self, *, patient: bool = False) -> None:
        deadline = time.monotonic() + HEAL_SECONDS
        while time.monotonic() < deadline and (patient or not self._board.stop.is_set()):
            if self._platform.is_healthy():
                return
            threading.Event().wait(0.3)


def _send(process: psutil.Process, number: signal.Signals) -> bool:
    try:
        process.send_signal(number)
        return True
    except psutil.NoSuchProcess:
        return False
