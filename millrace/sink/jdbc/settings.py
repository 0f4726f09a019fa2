"""Databases behind drivers that the operator registered, in the dialect of MySQL and MariaDB: bulk load into a staging table
and one guarded insert, so that the greatest version of each key stays.

Each tenant has a database. Deleted keys stay as tombstones in a second table. DDL cannot be rolled back there, so each ALTER
also records its step in the table's comment: the next attempt continues from there."""

import re
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from millrace.model.errors import Invalid
from millrace.model.sinks import Abilities
from millrace.sink.settings import PASSWORD, ConnectorSettings, Host, SecretReference

DEFAULT_DRIVER = "mariadb"
# Host and database become part of an address. They are checked so that nobody can add a property to it.
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
        description="mariadb works with MariaDB and MySQL. Other drivers are those that the operator registered.",
    )
    host: Host = Field(description="The server's name or address.")
    port: int = Field(3306, description="The server's port.")
    database: str = Field(description="How databases are named: each tenant gets one of its own, DATABASE$TENANT.")
    user: str = Field(description="The user that writes. It needs all privileges on those databases.")
    password: SecretReference | None = Field(None, description=PASSWORD)
    tls: Literal["disable", "prefer", "require", "verify"] = Field(
        "prefer", description="Whether to encrypt. verify also checks the server's certificate against its name."
    )

    @model_validator(mode="after")
    def _plain_address(self) -> Self:
        if not _HOST.fullmatch(self.host):
            remedy = "Give a name or an address, without a port."
            raise Invalid(f"{self.host!r:.60} is not a host.", remedy=remedy, code="bad_sink")
        if not _DATABASE.fullmatch(self.database):
            remedy = "Use 1 to 31 letters, digits, '_' or '-', beginning with a letter."
            raise Invalid(f"{self.database!r:.60} cannot name databases.", remedy=remedy, code="bad_sink")
        return self
