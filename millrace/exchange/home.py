"""The layout of a home: the one place that derives paths from names that passed the name rule.

Only the embedded back ends of this package, `embed`, `manage` and `cli` may use it: on several machines there is no home."""

from dataclasses import dataclass
from pathlib import Path

from millrace.model.names import checked_name

# So much of a time-ordered identifier is the same for about two hours.
_KEY_FOLDER = len("imp_") + 5


@dataclass(frozen=True, slots=True)
class Home:
    """Everything the platform keeps, below one directory."""

    root: Path

    @property
    def lake(self) -> Path:
        return self.root / "lake"

    @property
    def errors(self) -> Path:
        return self.root / "errors"

    @property
    def definitions(self) -> Path:
        return self.root / "definitions"

    @property
    def staging(self) -> Path:
        return self.root / "staging"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def stops(self) -> Path:
        """The imports whose remaining chunks are to be ignored, one empty file each."""
        return self.root / "stops"

    @property
    def parked(self) -> Path:
        """What has not reached its sink yet, by kind, tenant, table and target."""
        return self.root / "parked"

    def queue(self, kind: str, tenant: str, table: str, target: str) -> Path:
        parts = (("sink", kind), ("tenant", tenant), ("table", table), ("sink", target))
        return self.parked.joinpath(*(checked_name(what, name) for what, name in parts))

    @property
    def ends(self) -> Path:
        """Imports that have ended, and tables whose old rows may go, and whose sinks have not been told, one file each."""
        return self.root / "run" / "ends"

    def aged(self, tenant: str, table: str) -> Path:
        """Holds the version up to which other sinks were last asked to let the table's rows go."""
        return self.root / "run" / "aged" / f"{checked_name('tenant', tenant)}.{checked_name('table', table)}"

    @property
    def used_sinks(self) -> Path:
        """The kinds of sinks that some table names, one empty file each."""
        return self.root / "run" / "sinks"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def broker(self) -> Path:
        return self.root / "kafka"

    @property
    def store(self) -> Path:
        return self.root / "control.db"

    @property
    def data_plane(self) -> Path:
        """Where the data plane says that it is ready, and on which port it shows its metrics."""
        return self.root / "run" / "stream.json"

    @property
    def safe_version(self) -> Path:
        """Holds the version at or below which no row is still on its way."""
        return self.root / "run" / "safe-version"

    @property
    def jvm(self) -> Path:
        return self.root / "run" / "spark-jvm.json"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    @property
    def quality(self) -> Path:
        return self.root / "quality"

    @property
    def kms(self) -> Path:
        return self.root / "kms"

    @property
    def remote(self) -> Path:
        return self.root / "remote"

    @property
    def all_staged(self) -> Path:
        return self.root / "staged"

    @property
    def client(self) -> Path:
        return self.root / "client.json"

    @property
    def sources(self) -> Path:
        """SOURCE_PATH of the tenants' programs: below it each tenant's in and out."""
        return self.root / "sources"

    def source(self, tenant: str) -> Path:
        return self.sources / checked_name("tenant", tenant)

    @property
    def programs(self) -> Path:
        """Where the operator puts the programs that local client apps run."""
        return self.root / "programs"

    def handled(self, tenant: str) -> Path:
        """What came out of a tenant's program, and what became of it: no program sees it."""
        return self.root / "handled" / checked_name("tenant", tenant)

    @property
    def apps(self) -> Path:
        """Where the ingestion managers say how the client apps are doing."""
        return self.root / "run" / "apps.json"

    @property
    def app_requests(self) -> Path:
        return self.root / "run" / "apps-asked"

    def app_request(self, tenant: str) -> Path:
        """There while somebody asks for a run of the tenant's program."""
        return self.app_requests / checked_name("tenant", tenant)

    def table(self, tenant: str, table: str) -> Path:
        return self.lake / checked_name("tenant", tenant) / checked_name("table", table)

    def table_copies(self, tenant: str, table: str, place: str) -> Path:
        """What is kept here of a table that lives elsewhere; `place` tells places apart."""
        return self.remote / checked_name("tenant", tenant) / f"{checked_name('table', table)}.{place}"

    def staged(self, tenant: str, table: str) -> Path:
        """Accepted rows of a tenant whose agreement asks for encryption, sealed, until the sinks have them."""
        return self.all_staged / checked_name("tenant", tenant) / checked_name("table", table)

    def staged_tables(self) -> list[Path]:
        return sorted(self.all_staged.glob("*/*"))

    def data_keys(self, tenant: str) -> Path:
        """Wrapped data keys, in folders of a few hours each."""
        return self.root / "keys" / checked_name("tenant", tenant)

    def keys_destroyed(self, tenant: str) -> Path:
        """As old as the last time that the tenant's key was destroyed."""
        return self.data_keys(tenant) / ".destroyed"

    def data_key(self, tenant: str, key: str) -> Path:
        return self.data_keys(tenant) / key[:_KEY_FOLDER] / f"{checked_name('key', key)}.json"

    def table_errors(self, tenant: str, table: str) -> Path:
        return self.errors / checked_name("tenant", tenant) / checked_name("table", table)

    def definition(self, fingerprint: str) -> Path:
        return self.definitions / f"{fingerprint}.json"
