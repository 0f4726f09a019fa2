"""Places where a fault test can make the platform die, fail or stand still. Off unless MILLRACE_FAILPOINTS names a folder.

A file in that folder arms the failpoint of its name; its content is what happens there: kill, raise or pause. Whoever reaches
it first takes the file away, so that it happens once, whatever is restarted."""

import os
import signal
import time
from pathlib import Path

_FOLDER = os.environ.get("MILLRACE_FAILPOINTS")
_POISON = os.environ.get("MILLRACE_POISON", "").encode()
PAUSE_SECONDS = 3.0


class Injected(RuntimeError):
    """A failure that a test asked for."""


def reach(point: str) -> None:
    if _FOLDER is not None:
        _act(Path(_FOLDER) / point)


def _act(armed: Path) -> None:
    try:
        action = armed.read_text()
        armed.unlink()
    except FileNotFoundError:
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "raise":
        raise Injected(f"{armed.name} was armed")
    time.sleep(PAUSE_SECONDS)


def die_if_poisoned(body: bytes) -> None:
    """Kills the worker that holds a chunk with the text that MILLRACE_POISON names."""
    if _POISON and _POISON in body:
        os.kill(os.getpid(), signal.SIGKILL)
