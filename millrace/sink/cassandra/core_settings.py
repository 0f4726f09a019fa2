"""The Cassandra that the platform runs itself, where the operator has set `MILLRACE_MYSIMBDP`. It needs no settings.

Rows are written as by the sink `cassandra`. Each tenant has keyspaces of its own, named by the tenant and `key_space`."""

from typing import ClassVar

from pydantic import Field

from millrace.model.errors import Invalid
from millrace.model.sinks import CORE_STORE_KIND, Abilities
from millrace.model.table import TableDeclaration
from millrace.sink.cassandra.settings import CassandraSettings
from millrace.sink.context import SinkContext
from millrace.sink.settings import ConnectorSettings


class CoreSinkSettings(ConnectorSettings):
    kind: ClassVar[str] = CORE_STORE_KIND
    connector: ClassVar[str] = "millrace.sink.cassandra.core_sink:CoreStoreSink"
    extra: ClassVar[str | None] = CassandraSettings.extra
    abilities: ClassVar[Abilities] = CassandraSettings.abilities

    sink_retention_days: int | None = Field(None, description="Rows expire so many days after their version.")

    def abilities_for(self, table: TableDeclaration, name: str, context: SinkContext) -> Abilities:
        if not context.has_core_store:
            raise Invalid(
                f"This platform has no {CORE_STORE_KIND}.",
                remedy="Ask its operator to set MILLRACE_MYSIMBDP=true, or name a Cassandra of yours: "
                "{kind: cassandra, hosts: […]}.",
                code="no_core_store",
            )
        return self.abilities
