"""Databases behind drivers that the operator registered, in the dialect of MySQL and MariaDB: bulk load into a staging table
and one guarded insert, so that the greatest version of each key stays.

A database per tenant. Deleted keys stay as tombstones in a table beside. DDL cannot be taken back there, so each table says
in its comment how far it was brought, in the same statement that brings it: whoever comes next goes on from there."""

import re
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from millrace.model.errors import Invalid
from millrace.model.sinks import Abilities
from millrace.sink.settings import PASSWORD, ConnectorSettings, Host, SecretReference

DEFAULT_DRIVER = "mariadb"
# Host and database go into an address: checked letter by letter, so that nobody can add a property to it.
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+:[0-9A-Fa-f:.]*", re.ASCII)
_DATABASE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}", re.ASCII)


class JdbcSinkSettings(ConnectorSettings):
    kind: ClassVar[str] = "jdbc"
    connector: ClassVar[str] = "millrace.sink.jdbc.sink:JdbcSink"
    extra: ClassVar[str | None] = "jdbc"
    abilities: ClassVar[Abilities] = Abilities(
        atomic_publish=True, nested_types=True, exactly_once_append=True, survives="power",
        deletes_aged=True, keeps_table=True,
    )  # fmt: skip

    driver: str = Field(
        DEFAULT_DRIVER,
        description="mariadb speaks to MariaDB and MySQL itself; others are those that the operator registered.",
    )
    host: Host = Field(description="The server's name or address.")
    port: int = Field(3306, description="Its port.")
    database: str = Field(description="What databases are called: each tenant gets one of its own, DATABASE$TENANT.")
    user: str = Field(description="Who writes; needs all privileges on those databases.")
    password: SecretReference | None = Field(None, description=PASSWORD)
    tls: Literal["disable", "prefer", "require", "verify"] = Field(
        "prefer", description="Whether to encrypt; verify also checks the server's certificate against its name."
    )

    @model_validator(mode="after")
    def _plain_address(self) -> Self:
        if not _HOST.fullmatch(self.host):
            raise Invalid(
                f"{self.host!r:.60} is not a host.",
                remedy="Give a name or an address, without a port.",
                code="bad_sink",
            )
        if not _DATABASE.fullmatch(self.database):
            raise Invalid(
                f"{self.database!r:.60} cannot name databases.",
                remedy="Use 1 to 31 letters, digits, '_' or '-', beginning with a letter.",
                code="bad_sink",
            )
        return self
