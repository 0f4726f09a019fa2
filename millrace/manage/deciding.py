"""What the two ingestion managers do next: how a tenant's program stands and the moment in, actions out. Pure.

Batch: run on the schedule, never twice at once; what could not run in time follows the schedule's `missed`:
`skip` forgets it, `run_once` makes up for all of it with one run, `run_all` runs once for each. Stream: keep it running,
with longer pauses the oftener it ends."""

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta

from millrace.model.agreement import BATCH, STREAM, Schedule
from millrace.model.cron import next_after

# A run that begins so long after its moment is still on time.
GRACE = timedelta(seconds=60)
MOST_CAUGHT_UP = 1000
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=0.5), timedelta(seconds=60)
# A program that ran so long was well: the next end counts as the first.
WELL_AFTER = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Going:
    """The run under way. `in_app`: the program itself still runs, not only the import of its files."""

    revision: int
    started_at: datetime
    in_app: bool = True
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """`mode` is None where there is no program to run any more. `handled_until`: the moment up to which the schedule has
    been followed. `endings`: how often in a row a stream program has ended too soon."""

    revision: int
    mode: str | None
    schedule: Schedule | None
    handled_until: datetime
    going: Going | None = None
    is_asked: bool = False
    endings: int = 0
    ended_at: datetime | None = None
    longest_run: timedelta = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Start:
    """`due_at`: the moment of the schedule it runs for; `handled_until`: moments up to then are settled by it."""

    cause: str
    due_at: datetime | None = None
    handled_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """Moments of the schedule that nothing runs for."""

    count: int
    handled_until: datetime


@dataclass(frozen=True, slots=True)
class Stop:
    why: str


Action = Start | Skip | Stop


def decide(standing: Standing, now: datetime) -> tuple[Action, ...]:
    if standing.going is not None:
        return _while_going(standing, standing.going, now)
    if standing.mode == STREAM:
        resumes_at = standing.ended_at + pause_after(standing.endings) if standing.ended_at else now
        return (Start("stream"),) if now >= resumes_at else ()
    if standing.mode == BATCH:
        return _batch(standing, now)
    return ()


def pause_after(endings: int) -> timedelta:
    """None before the first start, then twice as long each time."""
    return timedelta() if endings == 0 else min(FIRST_PAUSE * 2 ** min(endings - 1, 20), LONGEST_PAUSE)


def next_due(standing: Standing) -> datetime | None:
    schedule = standing.schedule
    if standing.mode != BATCH or schedule is None:
        return None
    return next_after(schedule.cron, schedule.time_zone, standing.handled_until)


def _while_going(standing: Standing, going: Going, now: datetime) -> tuple[Action, ...]:
    if going.stopping or not going.in_app:
        return ()
    if standing.mode is None:
        return (Stop("The agreement has no program to run here any more."),)
    if standing.mode == STREAM and going.revision != standing.revision:
        return (Stop("The agreement has changed."),)
    if standing.mode == BATCH and now - going.started_at > standing.longest_run:
        return (Stop(f"It ran for more than {standing.longest_run}."),)
    return ()


def _batch(standing: Standing, now: datetime) -> tuple[Action, ...]:
    due = _due(standing, now)
    if not due:
        return (Start("asked"),) if standing.is_asked else ()
    missed = standing.schedule.missed if standing.schedule else "skip"
    if missed == "run_all":
        return (Start("schedule", due[0], due[0]),)
    if missed == "skip" and now - due[-1] > GRACE:
        return (Skip(len(due), due[-1]), *((Start("asked"),) if standing.is_asked else ()))
    skipped = (Skip(len(due) - 1, due[-2]),) if len(due) > 1 else ()
    return (*skipped, Start("schedule", due[-1], due[-1]))


def _due(standing: Standing, now: datetime) -> list[datetime]:
    """The moments that wait for a run, the newest ones if they are too many."""
    found: deque[datetime] = deque(maxlen=MOST_CAUGHT_UP)
    moment = next_due(standing)
    while moment is not None and moment <= now:
        found.append(moment)
        assert standing.schedule is not None
        moment = next_after(standing.schedule.cron, standing.schedule.time_zone, moment)
    return list(found)
