"""The command doctor: every check shows what it found and, where that is not well, what to do."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

from millrace.cli.printing import answer, printable
from millrace.cli.session import EXIT_FAILED, EXIT_UNREACHABLE, CommandSession
from millrace.client import Millrace
from millrace.client.endpoint import default_home
from millrace.embed.jars import cache_folder
from millrace.embed.java import find_java
from millrace.model.errors import MillraceError, Unavailable

LEAST_FREE_BYTES = 2 << 30
NEEDED_JARS = ("kafka", "spark")
_CONFINED = {
    "own user": "confined, each as a user of its own",
    "user namespace": "confined by user namespaces",
    "unconfined": "not confined",
    "refused": "local ones are not run",
}
app = typer.Typer()


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """`exit_code` is what the whole command ends with if this is the worst of the checks."""

    name: str
    found: str
    remedy: str = ""
    exit_code: int = 0


@app.command("doctor")
def doctor(session: CommandSession) -> None:
    """Check this machine and the platform.

    Java, jars, disk, home and every part of the platform, each with what to do about it."""
    home = (session.home or default_home()).expanduser()
    worst = 0
    for check in _checks(session, home):
        worst = EXIT_FAILED if EXIT_FAILED in (worst, check.exit_code) else max(worst, check.exit_code)
        _report(session, check)
    raise typer.Exit(worst)


def _checks(session: CommandSession, home: Path) -> Iterator[DoctorCheck]:
    yield _asked("java", lambda: str(find_java()))
    yield _jars()
    yield from _folder(home)
    yield from _platform(session)


def _asked(name: str, ask: Callable[[], str]) -> DoctorCheck:
    try:
        return DoctorCheck(name, ask())
    except MillraceError as failed:
        unreachable = name == "platform" and isinstance(failed, Unavailable)
        return DoctorCheck(name, failed.message, failed.remedy, EXIT_UNREACHABLE if unreachable else EXIT_FAILED)


def _jars() -> DoctorCheck:
    cached = cache_folder() / "jars"
    missing = [name for name in NEEDED_JARS if not any(cached.glob(f"{name}-*"))]
    if missing:
        remedy = "The first `millrace up` fetches them, or `make setup`."
        return DoctorCheck("jars", f"{', '.join(missing)} not in {cached}", remedy)
    return DoctorCheck("jars", f"{', '.join(NEEDED_JARS)} in {cached}")


def _judged(name: str, well: bool, found: str, remedy: str) -> DoctorCheck:
    return DoctorCheck(name, found) if well else DoctorCheck(name, found, remedy, EXIT_FAILED)


def _folder(home: Path) -> Iterator[DoctorCheck]:
    nearest = next(each for each in (home.absolute(), *home.absolute().parents) if each.exists())
    free = shutil.disk_usage(nearest).free
    found = f"{free / (1 << 30):,.1f} GiB free for {home}"
    yield _judged("disk", free >= LEAST_FREE_BYTES, found, "Free some space.")
    well = os.access(nearest, os.W_OK | os.X_OK)
    found = f"{home} is writable" if well else f"{nearest} is not writable"
    yield _judged("home", well, found, "Choose another with --home, or mend its owner.")


def _platform(session: CommandSession) -> Iterator[DoctorCheck]:
    answered = _asked("platform", lambda: f"{session.platform.health()['status']} at {session.platform.endpoint.url}")
    yield answered
    if answered.exit_code:
        return
    platform = session.platform
    health = platform.health()
    for part, state in health["parts"].items():
        yield _judged(part, state == "ok", str(state), "See the logs folder of the home.")
    for parked in health.get("tables", ()):
        found = f"{parked['table']}: {parked['reason']}"
        yield DoctorCheck(f"sink {parked['sink']}", found, parked["remedy"], EXIT_FAILED)
    yield _asked("token", lambda: f"accepted; {len(platform.tenants.list())} tenants visible")
    yield _client_apps(platform)


def _client_apps(platform: Millrace) -> DoctorCheck:
    """That the tenants' programs run unconfined is a warning; that declared ones do not run is a failure."""
    try:
        found = platform.apps.list()
    except MillraceError as failed:
        return DoctorCheck("client apps", failed.message, failed.remedy)
    backend = found["backend"]
    if backend is None:
        silent = "the ingestion managers do not answer"
        return DoctorCheck("client apps", silent, "See managers.log in the logs.", EXIT_FAILED)
    kind, items = backend["confinement"]["kind"], found["items"]
    means = (
        f"{len(items)} declared; {_CONFINED[kind]}; limits by {backend['limits']}, out watched by {backend['watching']}"
    )
    stand_still = kind == "refused" and any("image" not in item["agreement"]["app"] for item in items)
    return DoctorCheck("client apps", means, backend["confinement"]["warning"] or "", EXIT_FAILED if stand_still else 0)


def _report(session: CommandSession, check: DoctorCheck) -> None:
    well = check.exit_code == 0
    mark = "ok " if well and not check.remedy else "?? " if well else "BAD"
    remedy = f"\n                {printable(check.remedy)}" if check.remedy else ""
    document = {"check": check.name, "ok": well, "found": check.found, "remedy": check.remedy}
    answer(session, document, f"{mark} {printable(check.name):<11} {printable(check.found)}{remedy}")
