"""Cassandra: every mutation carries its version as its timestamp, and every column, so that the last one wins whole.

Rows of one partition travel in one unlogged batch; a window of batches is under way at a time."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from millrace.model.sinks import Abilities
from millrace.sink.settings import PASSWORD, ConnectorSettings, Host, SecretReference


class CassandraSettings(ConnectorSettings):
    kind: ClassVar[str] = "cassandra"
    connector: ClassVar[str] = "millrace.sink.cassandra.sink:CassandraSink"
    extra: ClassVar[str | None] = "cassandra"
    # Rows that are too old go by themselves: each carries its time to live.
    abilities: ClassVar[Abilities] = Abilities(nested_types=True, exactly_once_append=True, keeps_table=True)

    hosts: list[Host] = Field(min_length=1, description="Some of the cluster's nodes.")
    port: int = Field(9042, description="Of the native protocol.")
    user: str | None = Field(None, description="Who writes; needs CREATE, ALTER, SELECT and MODIFY.")
    password: SecretReference | None = Field(None, description=PASSWORD)
    local_dc: str = Field("", description="The data centre to write to; else the first node's.")
    consistency: Literal["ONE", "LOCAL_ONE", "QUORUM", "LOCAL_QUORUM", "ALL"] = Field(
        "LOCAL_QUORUM", description="How many replicas must have a write before it counts as durable."
    )
    replication: dict[str, Any] = Field(
        {"class": "SimpleStrategy", "replication_factor": 1},
        description="Of the keyspaces that are made, as Cassandra writes it.",
    )
    sink_retention_days: int | None = Field(None, description="Rows live so long, counted from their version.")
