"""`millrace up`: the whole platform on this machine, in order: broker, data plane, server, ingestion managers."""

import fcntl
import os
import secrets
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millrace.embed.broker import prepare_broker
from millrace.embed.core_roles import CoreRoles
from millrace.embed.core_store import READY_SECONDS, ROLE, CoreStore, prepare_core_store
from millrace.embed.default_app import install_default_app
from millrace.embed.jars import jar_folder
from millrace.embed.java import find_java
from millrace.embed.ports import free_ports, is_free
from millrace.embed.process import Child, Launch
from millrace.embed.progress import UpProgress
from millrace.embed.supervisor import RestartPolicy, Supervisor
from millrace.exchange.apps import AppBoard
from millrace.exchange.client_file import ClientFile, read_client_file, write_client_file
from millrace.exchange.core_store import CoreStoreFile, CoreStoreLogin
from millrace.exchange.data_plane import DataPlaneNotes
from millrace.exchange.home import Home
from millrace.model.errors import Clash
from millrace.settings import Settings
from millrace.wire.access import broker_accounts

# Chunks are allocated and freed by the megabyte; handing each back to the kernel costs more than judging it.
_REUSE_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
    "MALLOC_ARENA_MAX": "2",
}
_POLICY = RestartPolicy(budget=60, window_seconds=120.0)


def run_up(
    home: Path, port: int, host: str | None = None, tls_cert: Path | None = None, tls_key: Path | None = None
) -> None:
    """Starts everything, prints `ready URL`, and keeps it running until it is told to stop."""
    # The children read their settings from the environment; these may have come from flags.
    flags = {"MILLRACE_HOME": home, "MILLRACE_API__TLS_CERT": tls_cert, "MILLRACE_API__TLS_KEY": tls_key}
    os.environ.update({name: str(path.absolute()) for name, path in flags.items() if path is not None})
    settings = Settings()
    place = Home(settings.home)
    place.make_private()
    with _sole_owner(place):
        _run(place, settings, port, host)


def _run(place: Home, settings: Settings, port: int, host: str | None) -> None:
    address = host or settings.api.host
    certificate = settings.api.tls_cert
    scheme = "http" if certificate is None else "https"
    url = f"{scheme}://{f'[{address}]' if ':' in address else address}:{_settled_port(place, port)}"
    _leave_client_file(place, url, certificate)
    progress = UpProgress()
    children = []
    login: dict[str, str] = {}
    bootstrap = settings.kafka.bootstrap_servers
    if bootstrap is None:
        progress.say("broker: preparing its files")
        accounts = broker_accounts(settings.kafka.passwords or place.broker_passwords)
        heap, durable = settings.kafka.heap_mb, settings.survives_power_cut
        broker = prepare_broker(place.broker, accounts, heap_megabytes=heap, durable=durable)
        children.append(broker.child)
        bootstrap = broker.bootstrap_servers
        login = {"MILLRACE_KAFKA__PASSWORDS": str(accounts.folder.absolute())}
    core_store = _core_store(place, settings, progress)
    if core_store is not None:
        # First, beside the broker: it takes about as long to start as Spark.
        children.insert(0, core_store.child)
    progress.say("data-plane: preparing Spark's jars")
    jar_folder("spark")
    # Spark takes longest to start: it does so beside the server, which is ready only when both are.
    children += [
        _data_plane(place, bootstrap, login),
        _server(place, bootstrap, url, login, core_store),
        _managers(place),
    ]

    def ready() -> None:
        progress.all_ready()
        print(f"ready {url}", flush=True)

    Supervisor(children, _POLICY, progress.tell).run(ready)


def _core_store(place: Home, settings: Settings, progress: UpProgress) -> CoreStore | None:
    """With the default program, where the operator wants a platform as seed 002 describes it."""
    file = CoreStoreFile(place)
    if not settings.mysimbdp:
        file.withdraw()
        return None
    progress.say("core store: preparing its files")
    install_default_app(place.programs)
    store = prepare_core_store(place.core_store, settings.core_store.heap_mb)
    file.write(CoreStoreLogin(store.host, store.port, ROLE, store.password))
    return store


def _server(place: Home, bootstrap: str, url: str, login: dict[str, str], core_store: CoreStore | None) -> Child:
    host, port = url.partition("://")[2].rsplit(":", 1)
    argv = (sys.executable, "-m", "millrace.api", bootstrap, host.strip("[]"), port)
    log, notes = place.logs / "server.log", DataPlaneNotes(place)

    roles = None if core_store is None else CoreRoles(core_store)

    def is_ready() -> bool:
        # First, at every look: until then a role can log in that everybody knows.
        is_locked = roles is None or roles.are_set()
        return is_locked and notes.metrics_port() is not None and _answers(url)

    seconds = 90.0 if roles is None else READY_SECONDS
    return Child(Launch("server", argv, log, env={**_REUSE_MEMORY, **login}, is_ready=is_ready, ready_seconds=seconds))


def _managers(place: Home) -> Child:
    """A process of their own: whatever a client app does to them, the server lives."""
    apps = AppBoard(place)
    apps.withdraw()
    argv, log = (sys.executable, "-m", "millrace.manage"), place.logs / "managers.log"
    return Child(Launch("managers", argv, log, is_ready=lambda: apps.last() is not None))


def _data_plane(place: Home, bootstrap: str, login: dict[str, str]) -> Child:
    DataPlaneNotes(place).withdraw()
    argv = (sys.executable, "-m", "millrace.plane", bootstrap)
    # Spark's launcher looks for Java in fewer places than we do.
    environ = {**_REUSE_MEMORY, **login, "JAVA_HOME": str(find_java().home)}
    log = place.logs / "data-plane.log"
    return Child(Launch("data-plane", argv, log, env=environ))


@contextmanager
def _sole_owner(place: Home) -> Iterator[None]:
    """Two platforms on one home would end each other's processes."""
    with (place.root / "up.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remedy = "Stop the other `millrace up`, or choose another --home."
            raise Clash(f"A platform is running in {place.root} already.", remedy=remedy) from None
        yield


def _answers(url: str) -> bool:
    try:
        # Nothing is told to whoever answers, so its certificate does not matter.
        with urllib.request.urlopen(f"{url}/v1/tenants", timeout=2, context=ssl._create_unverified_context()):
            return True
    except urllib.error.HTTPError:
        # It refuses us for want of a token: it is there.
        return True
    except OSError:
        return False


def _settled_port(place: Home, wanted: int) -> int:
    """The port asked for; for 0 the one of the last run if it is still free, else any."""
    if wanted:
        if not is_free(wanted):
            raise Clash(f"Port {wanted} is taken.", remedy="Stop what listens there, or choose another with --port.")
        return wanted
    try:
        last = int(read_client_file(place.root).url.rsplit(":", 1)[1])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        last = 0
    return last if last and is_free(last) else free_ports(1)[0]


def _leave_client_file(place: Home, url: str, certificate: Path | None) -> None:
    """URL and token for the CLI on this machine; the token is made once."""
    try:
        token = read_client_file(place.root).token
    except (OSError, ValueError, KeyError, TypeError):
        token = "mr_" + secrets.token_urlsafe(32)
    named = None if certificate is None else str(certificate.absolute())
    write_client_file(place.root, ClientFile(url, token, named))
