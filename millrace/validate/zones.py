"""Local times of a time zone in, moments in UTC out, all rows at once.

A local time that comes twice, because the clock was set back, is the earlier of the two. One that never comes, because the
clock was set forward, has no moment."""

from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np

from millrace.validate.letters import DAY_US, Flags, Ints

_EPOCH = datetime(1970, 1, 1)
_SECOND_US = 1_000_000
# The clock does not change on most days: these offsets are remembered, the others are found second by second.
_CHANGES = -(10**9)


def in_utc(local: Ints, zone: str) -> tuple[Ints, Flags]:
    """The moments in microseconds, and which of the local times exist."""
    days, at = np.unique(local // DAY_US, return_inverse=True)
    offsets = np.array([_offset_of_day(zone, day) for day in days.tolist()], np.int64)[at.ravel()]
    exists = np.ones(len(local), bool)
    hard = np.flatnonzero(offsets == _CHANGES)
    if len(hard):
        seconds, at = np.unique(local[hard] // _SECOND_US, return_inverse=True)
        found = np.array([_offset_of_second(zone, second) for second in seconds.tolist()], np.int64)[at.ravel()]
        exists[hard] = found != _CHANGES
        offsets[hard] = np.where(found == _CHANGES, 0, found)
    return local - offsets * _SECOND_US, exists


@lru_cache(maxsize=1 << 16)
def _offset_of_day(zone: str, day: int) -> int:
    """The offset of every local time of a day in seconds east of UTC, if the clock does not change on it."""
    begin = _moved(timedelta(days=day))
    ends = (begin, _moved(timedelta(days=day + 1)))
    found = {_offset(zone, end, fold) for end in ends for fold in (0, 1)}
    return found.pop() if len(found) == 1 else _CHANGES


def _offset_of_second(zone: str, second: int) -> int:
    local = _moved(timedelta(seconds=second))
    first, second_time = _offset(zone, local, 0), _offset(zone, local, 1)
    return _CHANGES if first < second_time else first


def _moved(by: timedelta) -> datetime:
    return min(_EPOCH + min(by, datetime.max - _EPOCH), datetime.max)


def _offset(zone: str, local: datetime, fold: int) -> int:
    offset = ZoneInfo(zone).utcoffset(local.replace(fold=fold))
    return 0 if offset is None else int(offset.total_seconds())
