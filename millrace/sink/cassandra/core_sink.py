"""The connector of the platform's own Cassandra. Its address and login come from the platform, never from a tenant."""

from ipaddress import ip_network

from cassandra.auth import PlainTextAuthProvider

from millrace.outbound.addresses import Judged
from millrace.sink.cassandra.core_settings import CoreSinkSettings
from millrace.sink.cassandra.settings import CassandraSettings
from millrace.sink.cassandra.sink import CassandraSink
from millrace.sink.context import SinkContext


class CoreStoreSink(CassandraSink):
    def __init__(self, settings: CoreSinkSettings, context: SinkContext) -> None:
        login = context.places.core_store().read()
        known = CassandraSettings(hosts=[login.host], port=login.port, **settings.model_dump(exclude_none=True))
        # This one address, which no tenant may name.
        only = Judged((ip_network(login.host),))
        super().__init__(known, context, only, PlainTextAuthProvider(login.user, login.password))
