"""A throw-away Cassandra on loopback, from its jars: `with cassandra() as port`; or as the platform runs it, with a login."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable

from millrace.embed.core_roles import CoreRoles
from millrace.embed.core_store import CoreStore, cassandra_command, cassandra_settings, prepare_core_store
from millrace.embed.ports import LOOPBACK, free_ports
from millrace.embed.process import Child, Launch
from tests.support.children import wait_ready
from tests.support.waiting import wait_until

START_SECONDS = 120
HEAP_MEGABYTES = 512


@contextmanager
def cassandra() -> Iterator[int]:
    """The port of an empty server that lives as long as the context, and lets everybody in."""
    folder = Path(tempfile.mkdtemp(prefix="millrace-cassandra-"))
    native, storage = free_ports(2)
    argv = cassandra_command(folder, cassandra_settings(folder, native, storage, {}), HEAP_MEGABYTES)
    child = Child(Launch("cassandra", argv, folder / "server.log", cwd=folder, is_ready=lambda: _answers(native)))
    child.start()
    try:
        wait_ready(child, START_SECONDS)
        yield native
    finally:
        child.kill()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def core_store(folder: Path) -> Iterator[CoreStore]:
    """As `millrace up` runs it, in a folder that stays."""
    store = prepare_core_store(folder)
    roles = CoreRoles(store)
    store.child.start()
    try:
        wait_until(lambda: roles.are_set() or not store.child.running, START_SECONDS, "Cassandra to let us in")
        assert store.child.running, store.child.launch.log.read_text()[-3000:]
        yield store
    finally:
        store.child.kill()


def may_log_in(store: CoreStore, login: tuple[str, str] | None) -> bool:
    who = None if login is None else PlainTextAuthProvider(*login)
    return _answers(store.port, who)


def _answers(port: int, who: PlainTextAuthProvider | None = None) -> bool:
    cluster = Cluster([LOOPBACK], port=port, connect_timeout=2, auth_provider=who)
    try:
        cluster.connect().shutdown()
        return True
    except (NoHostAvailable, OSError):
        return False
    finally:
        cluster.shutdown()
