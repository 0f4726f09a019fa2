"""The layout of a home: the one place that derives paths from names that passed the name rule.

Only the embedded back ends of this package, `embed`, `manage` and `cli` may use it: on several machines there is no home."""

import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millrace.model.names import checked_name

_PRIVATE_FOLDERS = (
    "lake", "errors", "remote", "staged", "parked", "quality", "staging", "checkpoints", "definitions", "stops", "run",
    "logs", "kafka", "keys", "log-keys", "handled", "scratch", "raw",
)  # fmt: skip
_PRIVATE_MODE = 0o700
# So much of a time-ordered identifier is the same for about two hours.
_KEY_FOLDER = len("imp_") + 5


class Below:
    """An attribute: the path of these parts below another path of the same object."""

    def __init__(self, *parts: str, base: str = "root") -> None:
        self._parts = parts
        self._base = base

    def __get__(self, found: object, kind: type) -> Path:
        base: Path = getattr(found, self._base)
        return base.joinpath(*self._parts)


@dataclass(frozen=True, slots=True)
class Home:
    """Everything the platform keeps, below one directory."""

    root: Path

    # Tables, and what is on its way into them and other sinks.
    lake = Below("lake")
    errors = Below("errors")
    remote = Below("remote")
    all_staged = Below("staged")
    parked = Below("parked")
    held = Below("held")
    raw = Below("raw")
    quality = Below("quality")
    staging = Below("staging")
    checkpoints = Below("checkpoints")
    # What processes read of each other.
    store = Below("control.db")
    client = Below("client.json")
    definitions = Below("definitions")
    stops = Below("stops")
    ends = Below("run", "ends")
    used_sinks = Below("run", "sinks")
    released_chunks = Below("run", "released")
    safe_version = Below("run", "safe-version")
    data_plane = Below("run", "stream.json")
    jvm = Below("run", "spark-jvm.json")
    apps = Below("run", "apps.json")
    app_requests = Below("run", "apps-asked")
    app_news = Below("run", "app-news")
    # SOURCE_PATH of the client apps, and what the operator lets them run.
    sources = Below("sources")
    programs = Below("programs")
    # Of the machine.
    logs = Below("logs")
    broker = Below("kafka")
    core_store = Below("cassandra")
    core_store_login = Below("cassandra", "login.json")
    # Readable by the platform's user alone.
    broker_passwords = Below("kafka-passwords")
    op_keys = Below("op-keys")
    kms = Below("kms")
    log_keys = Below("log-keys")
    scratch = Below("scratch")

    def make_private(self) -> None:
        """Makes the folders that nobody but the platform's user reads. Other users lose their rights on those that are there;
        what the operator gave to a group stays."""
        for name in _PRIVATE_FOLDERS:
            folder = self.root / name
            folder.mkdir(parents=True, mode=_PRIVATE_MODE, exist_ok=True)
            # A volume of a pod may belong to another user.
            with suppress(PermissionError):
                mode = stat.S_IMODE(folder.stat().st_mode)
                if mode & stat.S_IRWXO:
                    folder.chmod(mode & ~stat.S_IRWXO)

    def queue(self, kind: str, tenant: str, table: str, target: str) -> Path:
        parts = (("sink", kind), ("tenant", tenant), ("table", table), ("sink", target))
        return self.parked.joinpath(*(checked_name(what, name) for what, name in parts))

    def aged(self, tenant: str, table: str) -> Path:
        """Holds the version up to which other sinks were last asked to let the table's rows go."""
        return self.root / "run" / "aged" / f"{checked_name('tenant', tenant)}.{checked_name('table', table)}"

    def source(self, tenant: str) -> Path:
        return self.sources / checked_name("tenant", tenant)

    def app_source(self, tenant: str, app: str) -> Path:
        """SOURCE_PATH of one of several programs of a tenant."""
        return self.source(tenant) / "apps" / checked_name("app", app)

    def handled(self, tenant: str) -> Path:
        """What came out of a tenant's program, and what became of it: no program sees it."""
        return self.root / "handled" / checked_name("tenant", tenant)

    def app_request(self, tenant: str, slug: str | None = None) -> Path:
        """There while somebody asks for a run of the tenant's program, or of the one of several with this slug."""
        return self.app_requests / (checked_name("tenant", tenant) if slug is None else slug)

    def table(self, tenant: str, table: str) -> Path:
        return self.lake / checked_name("tenant", tenant) / checked_name("table", table)

    def table_copies(self, tenant: str, table: str, place: str) -> Path:
        """What is kept here of a table that lives elsewhere; `place` tells places apart."""
        return self.remote / checked_name("tenant", tenant) / f"{checked_name('table', table)}.{place}"

    def staged(self, tenant: str, table: str) -> Path:
        """Accepted rows of a tenant whose agreement asks for encryption, sealed, until the sinks have them."""
        return self.all_staged / checked_name("tenant", tenant) / checked_name("table", table)

    def raw_chunks(self, tenant: str, table: str) -> Path:
        """Chunks that a table keeps after they are judged, in a folder for each day."""
        return self.raw / checked_name("tenant", tenant) / checked_name("table", table)

    def held_chunks(self, tenant: str) -> Path:
        """Sealed chunks of a tenant whose keys are out of reach."""
        return self.held / checked_name("tenant", tenant)

    def data_keys(self, tenant: str) -> Path:
        """Wrapped data keys, in folders of a few hours each."""
        return self.root / "keys" / checked_name("tenant", tenant)

    def keys_destroyed(self, tenant: str) -> Path:
        """As old as the last time that the tenant's key was destroyed."""
        return self.data_keys(tenant) / ".destroyed"

    def log_key(self, tenant: str, key: str) -> Path:
        """Opens rows that a tenant streamed on one day, in the table log."""
        return self.log_keys / checked_name("tenant", tenant) / Path(key).name

    def data_key(self, tenant: str, key: str) -> Path:
        return self.data_keys(tenant) / key[:_KEY_FOLDER] / f"{checked_name('key', key)}.json"

    def table_errors(self, tenant: str, table: str) -> Path:
        return self.errors / checked_name("tenant", tenant) / checked_name("table", table)

    def definition(self, fingerprint: str) -> Path:
        return self.definitions / f"{fingerprint}.json"
