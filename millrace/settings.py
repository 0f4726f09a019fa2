"""The platform's settings, from the environment: frozen, nested, unknown fields refused, secrets masked when shown.

MILLRACE_HOME is the root of all state; MILLRACE_KAFKA__BOOTSTRAP_SERVERS, MILLRACE_SPARK__MASTER … name nested fields."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from millrace.model.errors import Invalid
from millrace.model.names import checked_name
from millrace.model.secret_references import parse_reference
from millrace.setting_errors import PREFIX, nearest, unparsed_settings, variables, wrong_settings

MOST_TOKEN_DAYS = 3650
# Spark makes and spreads a secret itself on one machine, on YARN and on Kubernetes.
_MAKES_ITS_SECRET = re.compile(r"local(\[.*\])?|yarn|k8s:.*")
_SPARK_SECRET, _YES = "spark.authenticate.secret", SecretStr("true")
_VAULT_PATH = r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class KafkaSettings(_Section):
    bootstrap_servers: str | None = None
    """An external cluster; empty: the embedded broker."""
    options: dict[str, SecretStr] = {}
    """SASL and TLS settings of an external cluster, as the Kafka clients name them."""
    passwords: Path | None = None
    """The folder with the password files of the single broker's accounts; empty: `options` say how to log in."""
    replication: int = Field(default=1, ge=1)
    raw_partitions: int = Field(default=4, ge=1)
    """Partitions of raw-input for imports of more than one chunk."""
    heap_mb: int = Field(default=512, ge=256)
    ops_kept_days: int | None = Field(default=None, ge=1)
    """Older ops are trimmed from the table log; then no older copy of the control store can be restored. Empty: never."""
    streamed_rows_kept_days: int = Field(default=7, ge=1)
    """After so many days nobody can read streamed rows in the table log any more; the ops themselves stay."""


class SparkSettings(_Section):
    master: str | None = None
    """An external master; empty: this machine's cores."""
    driver_memory_mb: int = Field(default=1024, ge=512)
    bulk_chunks_per_batch: int = Field(default=128, ge=1)
    quick_chunks_per_batch: int = Field(default=512, ge=1)
    upkeep_share: float = Field(default=0.25, gt=0, le=1)
    """Merging files in the background takes this share of the machine's cores at most."""
    options: dict[str, SecretStr] = {}
    """Further settings of Spark, `spark.authenticate.secret` among them."""

    @model_validator(mode="after")
    def _has_secret(self) -> Self:
        asked = self.options.get("spark.authenticate", _YES).get_secret_value().lower() == "true"
        if asked and not _MAKES_ITS_SECRET.fullmatch(self.master or "local") and _SPARK_SECRET not in self.options:
            raise ValueError(
                f"this master asks for a secret: give {_SPARK_SECRET} in options, as its workers have it,"
                ' or say "spark.authenticate": "false" if nobody else reaches its network'
            )
        return self


class ApiSettings(_Section):
    host: str = "127.0.0.1"
    lease_seconds: int = Field(default=60, ge=1)
    """An upload that sends nothing for so long is over."""
    drop_retention_seconds: int = Field(default=7 * 86_400, ge=0)
    """A dropped table can be restored for so long; then its rows go."""
    decoder_mb: int = Field(default=768, ge=64)
    """What decoding a Parquet, Avro or compressed file may take, in a process of its own for each upload."""
    private_targets: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that tenants may have webhooks sent to although they are not public."""
    tls_cert: Path | None = None
    """The API's certificate, with those of its authorities behind it; with it the API speaks TLS and nothing else."""
    tls_key: Path | None = None
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks of proxies that say in X-Forwarded-For and X-Forwarded-Proto who asks; from others these are ignored."""
    token_days: float = Field(default=90, gt=0, le=MOST_TOKEN_DAYS)
    """A new token expires after so many days, unless its maker says otherwise."""

    @model_validator(mode="after")
    def _whole_pair(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together: give both")
        return self


class SinkSettings(_Section):
    parked_bytes: int = Field(default=10 << 30, ge=0)
    """What may wait for a tenant's sinks that take nothing, unless its agreement says otherwise; then it may not import."""


class JdbcDriver(_Section):
    """A JDBC driver that speaks to a server of MySQL's kind."""

    jars: tuple[Path, ...]
    class_name: str
    url: str = Field(pattern=r"^jdbc:.*\{host\}.*\{port\}")
    """With {host} and {port} where a target's go; properties are the operator's alone."""
    tls: dict[str, dict[str, str]] = {}
    """The driver's properties for each wish of a target (disable, prefer, require, verify); one not given is refused."""


class JdbcSettings(_Section):
    drivers: dict[str, JdbcDriver] = {}
    """Drivers that sinks may name, besides `mariadb`, which needs none."""


class LakeSettings(_Section):
    """Where new tables live whose sink is plain `delta`; those that are there stay where they are."""

    location: str | None = None
    """s3://BUCKET/PATH or hdfs://HOST:PORT/PATH; empty: below the home."""
    endpoint: str | None = None
    """S3: an address that speaks its protocol, if not Amazon's own. HDFS: where the name node answers HTTP."""
    region: str = "us-east-1"
    access_key: str | None = None
    """References to the operator's own secrets, which tenants cannot use: env:… or file:…."""
    secret_key: str | None = None
    session_token: str | None = None
    user: str | None = None
    token: str | None = None
    errors_location: str | None = None
    """Where rejected rows are kept as well, reached as `location` is; empty: below the home alone."""
    copies_mb: int = Field(default=1024, ge=1)
    """How much of each such table is kept on this machine, so that it need not be fetched again."""

    @model_validator(mode="after")
    def _places_apart(self) -> Self:
        if self.location and self.errors_location:
            one, other = (f"{place.rstrip('/')}/" for place in (self.location, self.errors_location))
            if one.startswith(other) or other.startswith(one):
                raise ValueError("location and errors_location must not lie in each other: tables would meet")
        return self


class KmsSettings(_Section):
    """Who keeps the tenants' keys, for tenants whose agreement says `encryption`."""

    kind: Literal["local", "aws", "vault"] = "local"
    folder: Path | None = None
    """local: where the key files are; empty: kms below the home. Better on another disk, and in another backup."""
    endpoint: str | None = None
    """aws: an address that speaks its protocol, if not Amazon's own. vault: its address."""
    region: str = "us-east-1"
    prefix: str = Field(default="millrace-", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$")
    """Keeps the keys of several platforms in one keeper apart."""
    mount: str = Field(default="transit", pattern=r"^[A-Za-z0-9_/-]{1,100}$")
    """vault: where its transit engine is."""
    namespace: str | None = None
    token: SecretStr | None = None
    """vault: who asks. aws: the usual chain of its client library says (variables, profiles, the machine's role)."""


KEYS_HERE = KmsSettings()


class VaultSettings(_Section):
    """A HashiCorp Vault with a KV engine of version 2, for references `vault:PATH#FIELD`."""

    address: str = Field(pattern=r"^https?://[^/]+$")
    ca_file: Path | None = None
    """Certificates that vouch for it; empty: those that the system trusts."""
    namespace: str | None = None
    mount: str = Field(default="secret", pattern=_VAULT_PATH)
    prefix: str = Field(default="millrace/{tenant}", pattern=r"^([A-Za-z0-9_.-]+/)*\{tenant\}(/[A-Za-z0-9_.-]+)*$")
    """The path of a tenant's secrets in the engine."""
    login: Literal["token", "approle", "kubernetes"] = "token"
    login_mount: str | None = Field(default=None, pattern=_VAULT_PATH)
    """Where the way to log in is mounted; empty: approle or kubernetes."""
    token: str | None = None
    """token: a reference to it, env:… or file:…."""
    role_id: str | None = None
    secret_id: str | None = None
    """approle: a reference to it, env:… or file:…."""
    role: str | None = None
    jwt_file: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
    """kubernetes: the token of the pod's account."""

    @model_validator(mode="after")
    def _can_log_in(self) -> Self:
        needed = {"token": ("token",), "approle": ("role_id", "secret_id"), "kubernetes": ("role",)}[self.login]
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"login by {self.login} needs {' and '.join(missing)}")
        return self


class SecretSettings(_Section):
    """Which secrets the tenants' sinks may refer to, besides the tenants' own."""

    shared: dict[str, tuple[str, ...]] = {}
    """References that are not a tenant's own, each with the tenants that may use it; "*" for all."""
    vault: VaultSettings | None = None

    @field_validator("shared")
    @classmethod
    def _are_references(cls, shared: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for reference, tenants in shared.items():
            try:
                parse_reference(reference)
                for tenant in tenants:
                    checked_name("tenant", "every" if tenant == "*" else tenant)
            except Invalid:
                # What was given may be the secret itself: it is not shown.
                raise ValueError("maps references such as env:NAME to lists of tenants, or of *") from None
        return shared


class QuerySettings(_Section):
    seconds: int = Field(default=30, ge=1)
    memory_mb: int = Field(default=512, ge=64)
    rows: int = Field(default=10_000, ge=1)


class LimitSettings(_Section):
    """What each tenant may use. docs/tenancy.md lists all limits; those of connections and requests count on each server."""

    # An agreement may say otherwise, under the same name.
    requests_per_second: int = Field(default=1000, ge=1)
    bytes_per_second: int = Field(default=1_000_000_000, ge=1)
    open_imports: int = Field(default=10_000, ge=1)
    rows_per_day: int = Field(default=10_000_000_000, ge=1)
    storage_bytes: int = Field(default=1 << 40, ge=1)

    requests: int = Field(default=1000, ge=1)
    """Requests under way at once, those that wait for an end among them."""
    waiting_requests: int = Field(default=200, ge=1)
    """Requests that wait for a thread of the server."""
    uploads: int = Field(default=200, ge=1)
    """Requests that bring files, at once."""
    decoders: int = Field(default=16, ge=1)
    """Parquet, Avro and compressed files that are decoded at once."""
    senders: int = Field(default=250, ge=1)
    """Senders of rows in use at once."""
    followers: int = Field(default=200, ge=0)
    """Connections that follow events."""
    queries: int = Field(default=2, ge=1)
    waiting_queries: int = Field(default=8, ge=0)
    """Queries that run at once, and that may wait besides."""
    what_ifs: int = Field(default=1, ge=1)
    waiting_what_ifs: int = Field(default=8, ge=0)
    look_ups: int = Field(default=2, ge=1)
    waiting_look_ups: int = Field(default=20, ge=0)
    """Tests of sinks, checks of webhooks' addresses."""
    tables: int = Field(default=10_000, ge=1)
    """Dropped tables count as long as they can be restored."""
    sinks: int = Field(default=20, ge=1)
    """Of one table."""
    spans: int = Field(default=10_000, ge=1)
    """Open spans."""
    tokens: int = Field(default=1000, ge=1)
    subscriptions: int = Field(default=20, ge=1)
    """Webhooks, besides those of the agreement."""


class KubernetesSettings(_Section):
    """How client apps are rendered for Kubernetes; what an agreement says itself goes before."""

    cell: str = Field(default="millrace", pattern=r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$")
    """Keeps the objects of several platforms on one cluster apart."""
    namespace_prefix: str = Field(default="millrace-tenant", pattern=r"^[a-z]([a-z0-9-]{0,20}[a-z0-9])?$")
    app_image: str | None = None
    """For tenants whose agreement names no app; {tenant} stands for the tenant's Kubernetes name."""
    image_pull_secrets: tuple[str, ...] = ()
    source_path: str = Field(default="/data", pattern=r"^(/[A-Za-z0-9._-]+)+$")
    storage_class: str | None = None
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"
    staging_mb: int = Field(default=10_240, ge=1)
    user_id: int | None = Field(default=None, ge=1)
    """User of all apps, never the platform's own; empty: each tenant's app has one of its own."""
    group_id: int = Field(default=10_001, ge=1)
    """The platform's group, by which apps reach the folders that they share with it."""
    runtime_class: str | None = None
    """A sandbox such as gVisor, by its RuntimeClass."""
    egress: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that apps may reach; none: no network at all."""
    app_cpu_millis: int = Field(default=100, ge=1)
    app_cpu_limit_millis: int = Field(default=1000, ge=1)
    app_memory_mb: int = Field(default=128, ge=1)
    app_memory_limit_mb: int = Field(default=512, ge=1)
    app_scratch_mb: int = Field(default=256, ge=1)
    app_longest_run_seconds: int = Field(default=86_400, ge=1)
    """A batch run that takes longer is ended."""

    @model_validator(mode="after")
    def _users_apart(self) -> Self:
        if self.user_id == self.group_id:
            raise ValueError("user_id must not be group_id, which is the platform's user too: apps would own its files")
        return self


class AppSettings(_Section):
    network: bool = False
    """Whether local client apps may use the network; with it they reach whatever listens on this machine."""
    longest_run_seconds: int = Field(default=86_400, ge=1)
    """A batch run that takes longer is ended."""
    unconfined: bool = False
    """Runs local client apps without confinement; otherwise they run confined or not at all."""
    shown: tuple[Path, ...] = ()
    """Folders of this machine that local client apps see besides its programs and libraries, read-only."""
    cpu_millis: int = Field(default=1000, ge=1)
    """For apps whose agreement names no limit."""
    memory_mb: int = Field(default=512, ge=16)
    """For apps whose agreement names no limit; /tmp counts."""
    processes: int = Field(default=256, ge=1)
    scratch_mb: int = Field(default=256, ge=1)
    """The app's /tmp."""
    disk_mb: int = Field(default=10_240, ge=1)
    """What an app may write to `in`, `out` and `log` before the platform takes it; no file may be larger."""
    kept_mb: int = Field(default=40_960, ge=1)
    """What the platform takes and keeps of an app's files that are not imported."""
    files: int = Field(default=100_000, ge=1)
    """So many files and folders it may have there."""


class CoreStoreSettings(_Section):
    heap_mb: int = Field(default=512, ge=256)


class Settings(BaseSettings):
    # A variable without a value is not set: as a path, it would be the folder in which the process was started.
    model_config = SettingsConfigDict(
        env_prefix="MILLRACE_", env_nested_delimiter="__", env_ignore_empty=True, frozen=True, extra="ignore"
    )

    home: Path = Path.home() / ".millrace"
    store_url: SecretStr | None = None
    """The control store; empty: SQLite under the home."""
    durability: Literal["process", "power_cut"] = "process"
    """What survives: everything that was acknowledged survives the death of any process, or of the machine as well."""
    files_root: Path | None = None
    """The folder that local file sinks may write below; empty: none may."""
    mysimbdp: bool = False
    """As seed 002 means it: uploads are staged, schedules run the sample app, an embedded Cassandra is the core store."""
    core_store: CoreStoreSettings = CoreStoreSettings()
    kafka: KafkaSettings = KafkaSettings()
    spark: SparkSettings = SparkSettings()
    api: ApiSettings = ApiSettings()
    lake: LakeSettings = LakeSettings()
    query: QuerySettings = QuerySettings()
    limits: LimitSettings = LimitSettings()
    jdbc: JdbcSettings = JdbcSettings()
    apps: AppSettings = AppSettings()
    sinks: SinkSettings = SinkSettings()
    secrets: SecretSettings = SecretSettings()
    kms: KmsSettings = KmsSettings()
    k8s: KubernetesSettings = KubernetesSettings()

    def __init__(self, **given: Any) -> None:
        """Raises Invalid, which names the variable. The library's errors would show values, which may be secrets."""
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise wrong_settings(type(self), error) from None
        except SettingsError:
            raise unparsed_settings(type(self), os.environ) from None

    @property
    def survives_power_cut(self) -> bool:
        return self.durability == "power_cut"

    def control_store(self, sqlite: Path) -> str:
        """The URL of the control store; `sqlite` is its file where the operator names no other."""
        return self.store_url.get_secret_value() if self.store_url else f"sqlite:///{sqlite}"


# Read where they are needed: by the client, the installer and the tests of faults.
_OTHERS = ("URL", "TOKEN", "CA_FILE", "CACHE", "IVY_SETTINGS", "FAILPOINTS", "POISON")
_SECRETS = f"{PREFIX}SECRET_"


def unread(names: Iterable[str]) -> dict[str, str | None]:
    """Variables that look like settings and are none, with the name that may be meant."""
    known = {*(f"{PREFIX}{name}" for name in _OTHERS), *(name for name, _ in variables(Settings))}
    own = (name for name in names if name.startswith(PREFIX) and not name.startswith(_SECRETS))
    return {name: nearest(name, known) for name in sorted(own) if name not in known}


@contextmanager
def wrong_settings_end() -> Iterator[None]:
    """For a process that starts: a setting that is wrong ends it with one line that says what to correct."""
    try:
        yield
    except Invalid as wrong:
        sys.exit(f"{wrong.message} {wrong.remedy}".strip())
