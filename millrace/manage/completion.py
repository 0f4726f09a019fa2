"""When a file of `out` is finished: what was seen of it and how its program is in, files to take or to refuse out. Pure.

A file whose name begins with a dot, or ends in .tmp, .part or .partial, is never finished. One that was renamed into place
is. One that was closed after writing is when its program is still well a moment later: a program that was killed closes its
files too. One of which nothing is known is when it has not changed for a while."""

from dataclasses import dataclass
from enum import StrEnum

UNFINISHED_ENDINGS = (".tmp", ".part", ".partial")
# Longer than it takes to notice that a program has died.
SETTLE_SECONDS = 0.25
STABLE_SECONDS = 2.0
# What another machine writes is seen late: its size may stand still here while it grows there.
STABLE_ELSEWHERE_SECONDS = 15.0
Signature = tuple[int, int, int]


class How(StrEnum):
    MOVED = "moved"
    CLOSED = "closed"
    FOUND = "found"


@dataclass(frozen=True, slots=True)
class Seen:
    """A file of `out` by its path there. `signature`: inode, size and time of change when it was seen."""

    path: str
    how: How
    at: float
    signature: Signature = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Health:
    """How the program is. `ended_at`: when it last ended, if it has. `is_batch`: what it closes it may open again until it
    ends."""

    is_running: bool
    is_batch: bool = False
    ended_at: float | None = None
    ended_well: bool = False
    is_elsewhere: bool = False


class Completion(StrEnum):
    TAKE = "take"
    WAIT = "wait"
    REFUSE = "refuse"


def may_be_finished(path: str) -> bool:
    return not any(part.startswith(".") or part.endswith(UNFINISHED_ENDINGS) for part in path.split("/"))


def decide(seen: Seen, health: Health, now: float) -> Completion:
    if seen.how is How.MOVED:
        return Completion.TAKE
    if health.is_batch and health.is_running:
        return Completion.WAIT
    if health.ended_at is not None and seen.at - SETTLE_SECONDS <= health.ended_at:
        return Completion.TAKE if health.ended_well else Completion.REFUSE
    stable = STABLE_ELSEWHERE_SECONDS if health.is_elsewhere else STABLE_SECONDS
    patience = SETTLE_SECONDS if seen.how is How.CLOSED else stable
    return Completion.TAKE if now - seen.at >= patience else Completion.WAIT
