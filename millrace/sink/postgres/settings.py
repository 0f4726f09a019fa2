"""PostgreSQL: COPY into a staging table and one guarded insert, so that the greatest version of each key stays.

As long as every key is new to the table, COPY goes straight into it. Each tenant has a schema. Deleted keys stay as
tombstones in a second table, which readers can ignore."""

from typing import ClassVar, Literal

from pydantic import Field

from millrace.model.sinks import Abilities
from millrace.sink.settings import PASSWORD, ConnectorSettings, Host, SecretReference


class PostgresSettings(ConnectorSettings):
    kind: ClassVar[str] = "postgres"
    connector: ClassVar[str] = "millrace.sink.postgres.sink:PostgresSink"
    abilities: ClassVar[Abilities] = Abilities(
        atomic_publish=True, nested_types=True, exactly_once_append=True, every_text=False, survives="power",
        deletes_aged=True, keeps_table=True,
    )  # fmt: skip

    host: Host = Field(description="The server's name or address.")
    port: int = Field(5432, description="The server's port.")
    database: str = Field(description="The database. Each tenant gets a schema of its own in it.")
    user: str = Field(description="The user that writes. It needs CREATE on the database.")
    password: SecretReference | None = Field(None, description=PASSWORD)
    sslmode: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] = Field(
        "prefer", description="As libpq defines it."
    )
