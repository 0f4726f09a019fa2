"""The one role of the embedded Cassandra that can log in. A new server knows a role whose password everybody knows."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from millrace.embed.core_store import ROLE, CoreStore
from millrace.embed.errors import ChildFailed
from millrace.embed.ports import accepts, listens

if TYPE_CHECKING:
    from cassandra.cluster import Session

# Cassandra's own: it exists once, with this password, when a node starts for the first time.
FIRST_ROLE = FIRST_PASSWORD = "cassandra"
CONNECT_SECONDS = 5.0


class CoreRoles:
    """`are_set` is asked again and again while the server starts."""

    def __init__(self, store: CoreStore) -> None:
        self._store = store
        self._are_set = False
        # The server remembers for two seconds who may log in.
        self._was_open = False

    def are_set(self) -> bool:
        """Whether the server takes our password, and no other one. What an earlier start left undone is done now."""
        if not self._are_set and self._answers():
            with _not_yet_errors():
                is_locked = self._lock_out_others() or (self._make_ours() and self._lock_out_others())
                self._are_set = is_locked and not (self._was_open and self._first_role_works())
        return self._are_set

    def _answers(self) -> bool:
        """Not somebody else who took the port in the meantime: what follows is secret."""
        pid = self._store.child.pid
        return pid is not None and accepts(self._store.port) and listens(pid, self._store.port)

    def _make_ours(self) -> bool:
        with _session(self._store, FIRST_ROLE, FIRST_PASSWORD) as session:
            if session is None:
                return False
            login = "WITH PASSWORD = '%s' AND SUPERUSER = true AND LOGIN = true"
            session.execute(f"CREATE ROLE IF NOT EXISTS {ROLE} {login % self._store.password}")
        return True

    def _first_role_works(self) -> bool:
        with _session(self._store, FIRST_ROLE, FIRST_PASSWORD) as session:
            return session is not None

    def _lock_out_others(self) -> bool:
        """Our role works; the first role can no longer log in, and nobody made another one before that."""
        with _session(self._store, ROLE, self._store.password) as session:
            if session is None:
                return False
            can_log_in = {row.role: row.login for row in session.execute("LIST ROLES")}
            if not can_log_in.get(FIRST_ROLE):
                return True
            self._was_open = True
            session.execute(f"ALTER ROLE {FIRST_ROLE} WITH SUPERUSER = false AND LOGIN = false")
            strange = {row.role for row in session.execute("LIST ROLES")} - {ROLE, FIRST_ROLE}
        if strange:
            raise ChildFailed(
                "cassandra", f"has roles that the platform did not make: {', '.join(sorted(strange))}",
                self._store.child.launch.log,
            )  # fmt: skip
        return True


@contextmanager
def _not_yet_errors() -> Iterator[None]:
    """A server that has just started may refuse a statement, or answer too late: then it is asked again."""
    from cassandra import DriverException  # noqa: PLC0415
    from cassandra.cluster import NoHostAvailable  # noqa: PLC0415
    from cassandra.protocol import ErrorMessage  # noqa: PLC0415

    with suppress(DriverException, ErrorMessage, NoHostAvailable):
        yield


@contextmanager
def _session(store: CoreStore, role: str, password: str) -> "Iterator[Session | None]":
    # The driver takes long to import, and is an extra.
    from cassandra import DriverException  # noqa: PLC0415
    from cassandra.auth import PlainTextAuthProvider  # noqa: PLC0415
    from cassandra.cluster import Cluster, NoHostAvailable  # noqa: PLC0415

    # It logs every attempt that fails while the server starts.
    logging.getLogger("cassandra").setLevel(logging.CRITICAL)
    cluster = Cluster(
        [store.host], port=store.port, connect_timeout=CONNECT_SECONDS, control_connection_timeout=CONNECT_SECONDS,
        auth_provider=PlainTextAuthProvider(role, password),
    )  # fmt: skip
    try:
        try:
            session = cluster.connect()
        except (NoHostAvailable, DriverException, OSError):
            session = None
        yield session
    finally:
        cluster.shutdown()
