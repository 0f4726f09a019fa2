"""The one name rule, and the one place that derives paths and topic names from names that passed it."""

import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from millrace.model.errors import Invalid

MAX_NAME = 63
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}", re.ASCII)
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
# So much of a time-ordered identifier is the same for about two hours.
_KEY_FOLDER = len("imp_") + 5
_IMPORT_ID = re.compile(r"imp_[0-9a-hjkmnp-tv-z]{26}", re.ASCII)


def checked_name(kind: str, value: object) -> str:
    """The value itself if it may become part of a path, a topic key or a view name."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    shown = repr(value if not isinstance(value, str) or len(value) <= 40 else value[:40] + "…")
    raise Invalid(
        f"{shown} is not a {kind} name.",
        remedy=f"Use 1 to {MAX_NAME} ASCII letters, digits, '_' or '-', starting with a letter.",
        code="bad_name",
    )


def new_id(prefix: str) -> str:
    """A time-ordered identifier: 48 bits of milliseconds, 80 bits of chance."""
    number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    return prefix + "_" + "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


def is_import_id(value: str) -> bool:
    return _IMPORT_ID.fullmatch(value) is not None


def import_id_of(op_id: str) -> str:
    """The id of the import that an op makes, whoever named the op."""
    return "imp_" + op_id.partition("_")[2]


MOST_SPAN_LEVELS = 8
_SPAN_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


def checked_span(value: object) -> str:
    """A span's name: levels joined by '/'."""
    parts = value.split("/") if isinstance(value, str) and len(value) <= 512 else []
    if 1 <= len(parts) <= MOST_SPAN_LEVELS and all(_SPAN_PART.fullmatch(part) for part in parts):
        return "/".join(parts)
    raise Invalid(
        f"{value!r:.60} is not a span name.",
        remedy=f"Use 1 to {MOST_SPAN_LEVELS} levels joined by '/', each of ASCII letters, digits, '.', '_' or '-'.",
        code="bad_name",
    )


def span_lineage(name: str) -> list[str]:
    """The span's name and those of the levels above it, the topmost first."""
    parts = name.split("/")
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]


def chunk_id(import_id: str, number: int) -> str:
    return f"{import_id}/{number}"


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

    def app_request(self, tenant: str) -> Path:
        """There while somebody asks for a run of the tenant's program."""
        return self.root / "run" / "apps-asked" / checked_name("tenant", tenant)

    def table(self, tenant: str, table: str) -> Path:
        return self.lake / checked_name("tenant", tenant) / checked_name("table", table)

    def table_copies(self, tenant: str, table: str, place: str) -> Path:
        """What is kept here of a table that lives elsewhere; `place` tells places apart."""
        return self.root / "remote" / checked_name("tenant", tenant) / f"{checked_name('table', table)}.{place}"

    def staged(self, tenant: str, table: str) -> Path:
        """Accepted rows of a tenant whose agreement asks for encryption, sealed, until the sinks have them."""
        return self.root / "staged" / checked_name("tenant", tenant) / checked_name("table", table)

    def staged_tables(self) -> list[Path]:
        return sorted((self.root / "staged").glob("*/*"))

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
