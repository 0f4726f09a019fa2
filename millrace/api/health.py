"""How the parts of the platform are doing."""

import time

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from millrace.account.accountant import Accountant
from millrace.api.jobs.sink_watch import ParkedTable, SinkWatch
from millrace.api.threads import Threads
from millrace.control.genuine import GenuineOps
from millrace.exchange.mailboxes import Exchange
from millrace.model.errors import MillraceError, Unavailable
from millrace.wire.client import Topics
from millrace.wire.topics import TABLE_OPS

FAILURES_IN_VAIN = 2
LEAST_FREE_MB = 256
DATA_PLANE_SECONDS = 2.0
_WATCHED = ("controller", "accountant", "notifier")


class PlatformHealth:
    def __init__(
        self,
        topics: Topics,
        threads: Threads,
        accountant: Accountant,
        exchange: Exchange,
        sinks: SinkWatch,
        genuine: GenuineOps,
    ) -> None:
        self._topics = topics
        self._threads = threads
        self._accountant = accountant
        self._exchange = exchange
        self._sinks = sinks
        self._genuine = genuine
        self._data_plane_seen = (0.0, "ok")

    def parts(self) -> dict[str, str]:
        """Each part with `ok`, or with what is wrong."""
        return {
            "kafka": self._kafka(),
            **{name: "ok" if self._threads.is_at_work(name) else "stopped" for name in _WATCHED},
            "ops": self._genuine.health(),
            "retention": self._accountant.retention,
            "disk": self._disk(),
            "data_plane": self._data_plane(),
        }

    def parked_tables(self) -> list[ParkedTable]:
        """Tables that cannot be written. They are no part of the platform: it is well without them."""
        return self._sinks.parked_tables()

    def data_plane_metrics(self) -> bytes:
        try:
            port = self._exchange.data_plane.metrics_port()
            if port is None:
                raise ConnectionRefusedError("The data plane has not said that it is ready.")
            return httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=2.0).content
        except (OSError, ValueError, httpx2.HTTPError) as error:
            raise Unavailable(
                "The data plane does not answer.", remedy="See its log under the home's logs folder."
            ) from error

    def data_plane(self) -> str:
        """`ok`, or what is wrong with it, as of a moment ago: many may ask at once."""
        asked, found = self._data_plane_seen
        if time.monotonic() - asked > DATA_PLANE_SECONDS:
            # One asks. The others take the last answer: a data plane that hangs must not hold all threads.
            self._data_plane_seen = time.monotonic(), found
            found = "It is starting." if self._exchange.data_plane.metrics_port() is None else self._data_plane()
            self._data_plane_seen = time.monotonic(), found
        return found

    def _kafka(self) -> str:
        try:
            self._topics.partitions(TABLE_OPS)
        except MillraceError as error:
            return error.message
        return "ok"

    def _disk(self) -> str:
        free_mb = self._exchange.places.free_bytes() >> 20
        return "ok" if free_mb >= LEAST_FREE_MB else f"Only {free_mb} MB are free where the home is."

    def _data_plane(self) -> str:
        try:
            return _stuck(self.data_plane_metrics()) or "ok"
        except MillraceError as error:
            return error.message


def _stuck(metrics: bytes) -> str:
    """What the data plane fails at again and again; a single failure may pass."""
    found = {
        sample.labels["query"]: int(sample.value)
        for family in text_string_to_metric_families(metrics.decode())
        for sample in family.samples
        if sample.name == "millrace_query_failures" and sample.value >= FAILURES_IN_VAIN
    }
    failing = ", ".join(f"{query} has failed {times} times in a row" for query, times in sorted(found.items()))
    return f"{failing}; logs/data-plane.log under the home says why." if found else ""
