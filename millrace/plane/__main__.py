"""`python -m millrace.plane BOOTSTRAP`: the data plane, until it is told to stop."""

import os
import sys
import time
from functools import partial

from millrace.deliver.couriers import Couriers
from millrace.deliver.fact_writer import FactWriter
from millrace.deliver.table_couriers import TableCouriers
from millrace.deliver.tables import TableWriter
from millrace.embed.jars import jar_files
from millrace.exchange.mailboxes import open_exchange
from millrace.exchange.parked_files import import_parked_files
from millrace.exchange.queues import Queues
from millrace.lake.errors_table import ERRORS_SCHEMA
from millrace.model.errors import Unavailable
from millrace.observe import log, log_to_stderr
from millrace.plane.flow import Flow, retained_groups
from millrace.plane.held import HeldChunkSender
from millrace.plane.plane import DataPlane, serve_metrics
from millrace.plane.session import open_session, outlive_none, remember, warm_up
from millrace.plane.tidying import keep_tidy
from millrace.priority import yield_to_others
from millrace.settings import Settings, wrong_settings_end
from millrace.sink.context import SinkContext
from millrace.sink.delta.sink import DeltaSink, ErrorStore
from millrace.sink.delta.upkeep import Upkeep
from millrace.stopping import StopRequest
from millrace.store.engine import ControlStore
from millrace.wire.access import Account, cluster_of
from millrace.wire.client import Appender, Cluster, Topics
from millrace.wire.topics import RAW_INPUT

TOPICS_SECONDS = 60.0
STOP_SECONDS = 12.0
# Where both want the cores, the server answers first: it hands over chunks, and its answers are short.
NICE = 4


def main() -> None:
    log_to_stderr()
    yield_to_others(NICE)
    stop_request = StopRequest()
    stop_request.heed_signals()
    # A query may wait for a broker that is gone. The next start does what it leaves undone.
    stop_request.exit_within(STOP_SECONDS)
    with wrong_settings_end():
        settings = Settings()
    exchange = open_exchange(settings.home, durable=settings.survives_power_cut)
    if settings.survives_power_cut:
        # Files that were staged before the setting was made.
        os.sync()
    sinks = SinkContext.of(settings, exchange.places)
    cluster = cluster_of(settings.kafka, sys.argv[1], Account.DATA_PLANE)
    outlive_none(exchange.data_plane)
    spark = open_session(settings.spark, jar_files("spark"), exchange.places.scratch())
    remember(exchange.data_plane, spark)
    # PySpark has set a SIGINT handler of its own.
    stop_request.heed_signals()
    if not stop_request.is_made():
        warm_up(spark)
    appender = Appender(cluster)
    upkeep = Upkeep()
    keyring = exchange.keyring(settings.kms)
    store = ControlStore(settings.control_store(exchange.places.control_store), settings.survives_power_cut)
    queues = Queues(store)
    import_parked_files(exchange.places, queues)
    retained = partial(retained_groups, cluster)
    couriers = Couriers(spark, exchange, sinks, appender, upkeep, queues, retained, settings.kms)
    accepted = DeltaSink(exchange.places, exchange.definitions, upkeep, keyring)
    rejected = ErrorStore(sinks, ERRORS_SCHEMA, upkeep, keyring)
    facts = FactWriter(exchange.places, appender, keyring)
    table_couriers = TableCouriers(exchange, queues, facts, (accepted, rejected))
    raw_partitions = _wait_for_topics(cluster, stop_request)
    flow = Flow(
        spark=spark,
        cluster=cluster,
        exchange=exchange,
        settings=settings.spark,
        raw_partitions=raw_partitions,
        accepted=TableWriter(accepted, table_couriers),
        rejected=TableWriter(rejected, table_couriers),
        couriers=couriers,
        appender=appender,
        kms=settings.kms,
    )
    port = serve_metrics(0)

    def ready() -> None:
        exchange.data_plane.announce(port)
        log("data_plane_ready", metrics_port=port)

    keep_tidy(spark, exchange, sinks, upkeep, settings)
    couriers.start()
    table_couriers.start()
    HeldChunkSender(exchange, keyring, appender, raw_partitions).start()
    DataPlane(flow.queries, exchange.places, appender).run(stop_request, ready)
    spark.stop()
    appender.close()


def _wait_for_topics(cluster: Cluster, stop_request: StopRequest) -> int:
    """The server makes the topics; it starts at the same time. Without partitions there are no queries to stop either."""
    topics, deadline = Topics(cluster), time.monotonic() + TOPICS_SECONDS
    while True:
        try:
            return topics.partitions(RAW_INPUT)
        except Unavailable:
            if stop_request.wait(0.2):
                sys.exit(0)
            if time.monotonic() > deadline:
                raise


if __name__ == "__main__":
    main()
