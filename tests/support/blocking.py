"""Notes calls that wait for a disk, a database, a name or a clock in the thread of a running event loop."""

import asyncio
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import event
from sqlalchemy.engine import Engine

# Audit events of Python, by their names or how they begin.
_BLOCKING = (
    "open",
    "os.",
    "shutil.",
    "sqlite3.",
    "socket.getaddrinfo",
    "socket.gethostby",
    "time.sleep",
    "glob.",
    "tempfile.",
)
# What a process does once for itself: code is loaded, random bytes are read.
_PASSED_OVER = ("os.putenv", "os.unsetenv", "os.fork", "os.posix_spawn")
_CODE = (".py", ".pyc", ".so", ".pem", "/dev/urandom", "/dev/null")
_hearing: list[list[str]] = []
_is_installed = False


def _hear(event: str, given: tuple[object, ...]) -> None:
    if not _hearing or not event.startswith(_BLOCKING) or event in _PASSED_OVER:
        return
    if asyncio._get_running_loop() is None or (event == "open" and _is_passed_over(given[0])):
        return
    _note(f"{event} {given!r:.100}")


def _is_passed_over(path: object) -> bool:
    """A number is a file or a pipe that is open already."""
    return isinstance(path, int) or str(path).endswith(_CODE)


def _note(what: str) -> None:
    frames = traceback.extract_stack()
    if any("importlib" in frame.filename for frame in frames):
        return
    ours = [
        f"{frame.filename.rpartition('/millrace/')[2]}:{frame.lineno}"
        for frame in frames
        if "/millrace/" in frame.filename
    ]
    for heard in _hearing:
        heard.append(f"{what} at {' < '.join(reversed(ours[-4:]))}")


@contextmanager
def blocking_calls() -> Iterator[list[str]]:
    """Those of every event loop of this process, while the block runs. Statements of the control store are among them."""

    global _is_installed
    if not _is_installed:
        # A hook cannot be taken off again.
        sys.addaudithook(_hear)
        _is_installed = True

    def executed(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        if asyncio._get_running_loop() is not None:
            _note(f"SQL {statement:.80}")

    heard: list[str] = []
    _hearing.append(heard)
    event.listen(Engine, "before_cursor_execute", executed)
    try:
        yield heard
    finally:
        event.remove(Engine, "before_cursor_execute", executed)
        _hearing.remove(heard)
