"""Cassandra: every mutation carries all columns and its version as the timestamp, so the last version wins as a whole row.

Rows of one partition travel in one unlogged batch. A window of batches is in flight at a time."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from millrace.model.sinks import Abilities
from millrace.sink.settings import PASSWORD, ConnectorSettings, Host, SecretReference

# The name of a strategy, of a data centre, or a number: it becomes part of a statement.
_WORD = re.compile(r"[A-Za-z0-9._:-]{1,100}", re.ASCII)


def _word(value: str) -> str:
    if not _WORD.fullmatch(value):
        raise PydanticCustomError("replication", "Write class and factors as plain words and numbers.")
    return value


ReplicationWord = Annotated[str, AfterValidator(_word)]


class CassandraSettings(ConnectorSettings):
    kind: ClassVar[str] = "cassandra"
    connector: ClassVar[str] = "millrace.sink.cassandra.sink:CassandraSink"
    extra: ClassVar[str | None] = "cassandra"
    # Rows that are too old expire: each carries its time to live.
    abilities: ClassVar[Abilities] = Abilities(nested_types=True, exactly_once_append=True, keeps_table=True)

    hosts: list[Host] = Field(min_length=1, description="Some of the cluster's nodes.")
    port: int = Field(9042, description="The port of the native protocol.")
    user: str | None = Field(None, description="The user that writes. It needs CREATE, ALTER, SELECT and MODIFY.")
    password: SecretReference | None = Field(None, description=PASSWORD)
    local_dc: str = Field("", description="The data centre to write to. Without it, that of the first node.")
    consistency: Literal["ONE", "LOCAL_ONE", "QUORUM", "LOCAL_QUORUM", "ALL"] = Field(
        "LOCAL_QUORUM", description="How many replicas must have a write before it counts as durable."
    )
    replication: dict[ReplicationWord, ReplicationWord | int] = Field(
        {"class": "SimpleStrategy", "replication_factor": 1},
        description="The replication of keyspaces that are created, as Cassandra writes it.",
    )
    sink_retention_days: int | None = Field(None, description="Rows expire so many days after their version.")
