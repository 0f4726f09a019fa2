"""A throw-away MariaDB on loopback, from the machine's own programs: `with mariadb() as port`.

MariaDB refuses to run as root; then it runs under another user, in a folder that user owns."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql

from millrace.embed.ports import LOOPBACK, free_ports
from millrace.embed.process import Child, Launch
from tests.support.children import wait_ready

USER, DATABASE = "millrace", "lake"
GUARDED, PASSWORD = "guarded", "mill & race"
ADMINISTRATOR = "administrator"
PROGRAMS = ("mariadbd", "mariadb-install-db")
ELSEWHERE = os.pathsep.join(("/usr/sbin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"))
REMEDY = "install MariaDB (Debian, Ubuntu: apt-get install mariadb-server; macOS: brew install mariadb) and run again"
GRANTS = f"""
CREATE USER '{USER}'@'%';
GRANT ALL ON `{DATABASE}%`.* TO '{USER}'@'%';
CREATE USER '{GUARDED}'@'%' IDENTIFIED BY '{PASSWORD}';
GRANT SELECT ON `{DATABASE}%`.* TO '{GUARDED}'@'%';
CREATE USER '{ADMINISTRATOR}'@'%';
GRANT ALL ON *.* TO '{ADMINISTRATOR}'@'%';
"""


@contextmanager
def mariadb() -> Iterator[int]:
    """The port of an empty server that lives as long as the context."""
    server, installer = (_program(name) for name in PROGRAMS)
    folder = Path(tempfile.mkdtemp(prefix="millrace-mariadb-"))
    try:
        with _running(server, installer, folder) as port:
            yield port
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str:
    """A failure, never a skip, names the remedy."""
    found = shutil.which(name) or shutil.which(name, path=ELSEWHERE)
    if found is None:
        raise RuntimeError(f"no {name} on PATH or in {ELSEWHERE}: {REMEDY}")
    return found


@contextmanager
def _running(server: str, installer: str, folder: Path) -> Iterator[int]:
    prefix = _as_ordinary_user(folder)
    data, start = folder / "data", folder / "start.sql"
    install = (installer, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal")
    subprocess.run([*prefix, *install, "--skip-test-db"], check=True, capture_output=True, cwd=folder, timeout=120)
    start.write_text(GRANTS)
    (port,) = free_ports(1)
    options = {
        "datadir": data,
        "port": port,
        "bind-address": LOOPBACK,
        "socket": folder / "socket",
        "pid-file": folder / "server.pid",
        "init-file": start,
        "innodb-buffer-pool-size": "256M",
        "innodb-flush-log-at-trx-commit": 0,
        "innodb-log-file-size": "256M",
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    argv = tuple(map(str, (*prefix, server, "--no-defaults", *words)))
    child = Child(Launch("mariadb", argv, folder / "mariadb.log", cwd=folder, is_ready=lambda: _answers(port)))
    child.start()
    try:
        wait_ready(child, 60)
        yield port
    finally:
        child.kill()


def _as_ordinary_user(folder: Path) -> tuple[str, ...]:
    if os.geteuid() != 0:
        return ()
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = known.get("mysql") or known["nobody"]
    os.chown(folder, user.pw_uid, user.pw_gid)
    # Changing the user clears the wish to die with the parent, so it is made again.
    return (
        *("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"),
        *("--pdeathsig", "KILL", "--"),
    )


def _answers(port: int) -> bool:
    try:
        pymysql.connect(host=LOOPBACK, port=port, user=USER, connect_timeout=2).close()
        return True
    except pymysql.err.OperationalError:
        return False
