"""A throw-away PostgreSQL on loopback, from the machine's own programs: `with postgres() as dsn`.

PostgreSQL refuses to run as root; then it runs under another user, in a folder that user owns.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from millrace.embed.ports import LOOPBACK, free_ports
from millrace.embed.process import Child, Launch
from tests.support.children import wait_ready

DEBIAN_PROGRAMS = Path("/usr/lib/postgresql")
ROLE = "millrace"
REMEDY = "install PostgreSQL (Debian, Ubuntu: apt-get install postgresql; macOS: brew install postgresql) and run again"


@contextmanager
def postgres() -> Iterator[str]:
    """The DSN of an empty database that lives as long as the context."""
    programs = find_programs()
    folder = Path(tempfile.mkdtemp(prefix="millrace-postgres-"))
    try:
        with _running(programs, folder) as dsn:
            yield dsn
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_programs() -> Path:
    """The newest folder that holds initdb and postgres; a failure, never a skip, names the remedy."""
    newest_first = sorted(DEBIAN_PROGRAMS.glob("*/bin"), key=lambda each: int(each.parent.name), reverse=True)
    on_path = shutil.which("initdb")
    for folder in (*([Path(on_path).resolve().parent] if on_path else []), *newest_first):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise RuntimeError(f"no initdb and postgres on PATH or in {DEBIAN_PROGRAMS}: {REMEDY}")


@contextmanager
def _running(programs: Path, folder: Path) -> Iterator[str]:
    data = folder / "data"
    prefix = _as_ordinary_user(folder)
    initialise = (programs / "initdb", "-D", data, "-U", ROLE, "--auth=trust", "--encoding=UTF8", "--no-locale", "-N")
    subprocess.run([*prefix, *initialise], check=True, capture_output=True, cwd=folder, timeout=120)
    (port,) = free_ports(1)
    dsn = f"postgresql://{ROLE}@{LOOPBACK}:{port}/postgres"
    settings = {
        "port": str(port),
        "listen_addresses": LOOPBACK,
        "unix_socket_directories": "",
        "fsync": "off",
        "max_connections": "50",
    }
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    argv = tuple(map(str, (*prefix, programs / "postgres", "-D", data, *options)))
    log = folder / "postgres.log"
    # SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for clients that a failed test left connected.
    child = Child(Launch("postgres", argv, log, cwd=folder, is_ready=lambda: _answers(dsn), stop_signal=signal.SIGINT))
    child.start()
    try:
        wait_ready(child, 30)
        yield dsn
    finally:
        child.stop()


def _as_ordinary_user(folder: Path) -> tuple[str, ...]:
    if os.geteuid() != 0:
        return ()
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = known.get("postgres") or known["nobody"]
    os.chown(folder, user.pw_uid, user.pw_gid)
    # Changing the user clears the wish to die with the parent, so it is made again.
    return (
        *("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"),
        *("--pdeathsig", "KILL", "--"),
    )


def _answers(dsn: str) -> bool:
    try:
        with psycopg.connect(dsn, connect_timeout=2) as connection:
            return connection.execute("select 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False
