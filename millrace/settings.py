"""The only reader of the environment: frozen, nested, unknown fields refused, secrets masked when shown.

MILLRACE_HOME is the root of all state; MILLRACE_KAFKA__BOOTSTRAP_SERVERS, MILLRACE_SPARK__MASTER … name nested fields."""

import json
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from millrace.model.names import Home


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class KafkaSettings(_Section):
    bootstrap_servers: str | None = None
    """An external cluster; empty: the embedded broker."""
    options: dict[str, SecretStr] = {}
    """SASL and TLS settings of an external cluster, as the Kafka clients name them."""
    replication: int = Field(default=1, ge=1)
    raw_partitions: int = Field(default=4, ge=1)
    """Partitions of raw-input for imports of more than one chunk."""
    heap_mb: int = Field(default=512, ge=256)


class SparkSettings(_Section):
    master: str | None = None
    """An external master; empty: this machine's cores."""
    driver_memory_mb: int = Field(default=1024, ge=512)
    bulk_chunks_per_batch: int = Field(default=128, ge=1)
    quick_chunks_per_batch: int = Field(default=512, ge=1)
    options: dict[str, str] = {}


class ApiSettings(_Section):
    host: str = "127.0.0.1"
    lease_seconds: int = Field(default=60, ge=1)
    """An upload that sends nothing for so long is over."""
    drop_retention_seconds: int = Field(default=7 * 86_400, ge=0)
    """A dropped table can be restored for so long; then its rows go."""
    private_targets: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that tenants may have webhooks sent to although they are not public."""


class QuerySettings(_Section):
    seconds: int = Field(default=30, ge=1)
    memory_mb: int = Field(default=512, ge=64)
    rows: int = Field(default=10_000, ge=1)


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="MILLRACE_", env_nested_delimiter="__", frozen=True, extra="ignore")

    home: Path = Path.home() / ".millrace"
    store_url: SecretStr | None = None
    """The control store; empty: SQLite under the home."""
    kafka: KafkaSettings = KafkaSettings()
    spark: SparkSettings = SparkSettings()
    api: ApiSettings = ApiSettings()
    query: QuerySettings = QuerySettings()

    def admin_token(self) -> str:
        """The administrators' token, from the client file that `millrace up` leaves in the home."""
        token: str = json.loads(Home(self.home).client.read_text())["token"]
        return token
