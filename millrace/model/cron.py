"""A schedule in Kubernetes' syntax in, the times when it fires out. It reads no clock: the caller gives the time.

Five fields (minute, hour, day of month, month, day of week), names, lists, ranges, steps, `?` for `*`, the macros and
`@every 1h30m`. If both day fields are restricted, either may match. As in Kubernetes, a local time that a change of clocks
skips does not fire, and a local time that it repeats fires twice."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from millrace.model.errors import Invalid

YEARS_AHEAD = 5
_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY_NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = {name: at for at, name in enumerate(_MONTH_NAMES, 1)}
_DAYS = {name: at for at, name in enumerate(_DAY_NAMES)}
_MACROS = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 6, _DAYS),
)
_EVERY = re.compile(r"@every ((?:[0-9]+(?:\.[0-9]+)?(?:h|m|s))+)")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|m|s)")
_SECONDS = {"h": 3600, "m": 60, "s": 1}


@dataclass(frozen=True, slots=True)
class Cron:
    """`any_day`: at least one day field is unrestricted, so both must match."""

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    any_day: bool = True
    every: timedelta | None = None

    def has_day(self, moment: datetime) -> bool:
        of_month, of_week = moment.day in self.days, moment.isoweekday() % 7 in self.weekdays
        return of_month and of_week if self.any_day else of_month or of_week


@lru_cache(maxsize=4096)
def parse_cron(words: str) -> Cron:
    """Refuses what Kubernetes refuses, also a time zone inside the schedule."""
    if words.startswith(("TZ=", "CRON_TZ=")):
        raise Invalid(f"schedule {words!r:.60} holds a time zone.", remedy="Write it as time_zone.")
    if words.startswith("@every"):
        return Cron(every=_interval(words))
    parts = _MACROS.get(words, words).split()
    if words.startswith("@") and words not in _MACROS:
        raise Invalid(f"schedule is {words!r:.60}.", remedy=f"Known: {', '.join(_MACROS)}, @every 1h30m.")
    if len(parts) != len(_FIELDS):
        raise Invalid(
            f"schedule {words!r:.60} has {len(parts)} fields.",
            remedy="Write five: minute, hour, day of month, month, day of week.",
        )
    sets = [_field(part, *field) for part, field in zip(parts, _FIELDS, strict=True)]
    (minutes, _), (hours, _), (days, any_of_month), (months, _), (weekdays, any_of_week) = sets
    return Cron(minutes, hours, days, months, weekdays, any_of_month or any_of_week)


def parse_zone(name: str) -> ZoneInfo:
    """A zone of the IANA database; `Local` is refused, as by Kubernetes."""
    try:
        if name.lower() != "local":
            return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        pass
    raise Invalid(f"time_zone is {name!r:.60}.", remedy="Name one of the IANA database: UTC, Europe/Helsinki …")


def next_after(cron: str, time_zone: str, moment: datetime) -> datetime | None:
    """The first time after the given one when the schedule fires, in UTC; None if it does not fire within five years."""
    when, zone = parse_cron(cron), parse_zone(time_zone)
    start = moment.astimezone(UTC)
    if when.every is not None:
        return start.replace(microsecond=0) + when.every
    at = start.replace(second=0, microsecond=0) + timedelta(minutes=1)
    last_year = at.astimezone(zone).year + YEARS_AHEAD
    while (local := at.astimezone(zone)).year <= last_year:
        if local.month not in when.months:
            at = _later(at, _month_after(local))
        elif not when.has_day(local):
            at = _later(at, _day_after(local))
        elif local.hour not in when.hours:
            at += timedelta(minutes=60 - local.minute)
        elif local.minute not in when.minutes:
            at += timedelta(minutes=1)
        else:
            return at
    return None


def _day_after(local: datetime) -> datetime:
    return (local.replace(hour=0, minute=0, fold=0, tzinfo=None) + timedelta(days=1)).replace(tzinfo=local.tzinfo)


def _month_after(local: datetime) -> datetime:
    first = local.replace(day=1, hour=0, minute=0, fold=0, tzinfo=None)
    return (first + timedelta(days=32)).replace(day=1, tzinfo=local.tzinfo)


def _later(at: datetime, local: datetime) -> datetime:
    """The next day. The search must go on even if a change of clocks skips or repeats midnight."""
    return max(local.astimezone(UTC), at + timedelta(minutes=1))


def _interval(words: str) -> timedelta:
    found = _EVERY.fullmatch(words)
    seconds = sum(float(size) * _SECONDS[unit] for size, unit in _PART.findall(found[1])) if found else 0.0
    if not 1 <= seconds <= 10 * 366 * 86_400:
        raise Invalid(f"schedule is {words!r:.60}.", remedy="Write @every 1h30m; at least one second.")
    return timedelta(seconds=int(seconds))


def _field(words: str, what: str, low: int, high: int, names: dict[str, int]) -> tuple[frozenset[int], bool]:
    values: set[int] = set()
    says_nothing = False
    for part in words.split(","):
        found, is_star = _range(part, what, low, high, names)
        values.update(found)
        says_nothing |= is_star
    return frozenset(values), says_nothing


def _range(words: str, what: str, low: int, high: int, names: dict[str, int]) -> tuple[range, bool]:
    span, slash, step_words = words.partition("/")
    first, dash, last = span.partition("-")
    is_star = first in ("*", "?") and not dash
    start = low if is_star else _value(first, what, names)
    end = high if is_star or (slash and not dash) else _value(last, what, names) if dash else start
    step = _value(step_words, what, {}) if slash else 1
    if step < 1 or start < low or end > high or start > end:
        raise Invalid(f"schedule has {words!r:.40} as {what}.", remedy=f"It goes from {low} to {high}.")
    return range(start, end + 1, step), is_star and step == 1


def _value(words: str, what: str, names: dict[str, int]) -> int:
    if words.lower() in names:
        return names[words.lower()]
    if not words.isascii() or not words.isdigit() or len(words) > 4:
        raise Invalid(f"schedule has {words!r:.40} as {what}.", remedy="Write numbers, names, ranges and steps.")
    return int(words)
