"""Announces work on a table that takes long: rows of files that another engine wrote are indexed, or files get another shape.
Whoever writes several tables in turn need not wait for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Fewer rows take some milliseconds.
LONG_ROWS = 50_000

_listener: ContextVar[Callable[[], None] | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Callable[[], None]) -> Iterator[None]:
    """Calls the listener when long work begins within the block, in the same thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def announce(rows: int) -> None:
    """Work on so many rows begins. A negative number stands for one that nobody knows."""
    listener = _listener.get()
    if listener is not None and not 0 <= rows < LONG_ROWS:
        listener()
