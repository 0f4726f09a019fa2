"""The data plane process: one Spark session, the queries of the flow, each started again when it fails."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import start_http_server
from pyspark.sql.streaming.query import StreamingQuery

from millrace.exchange.places import Places
from millrace.model.facts import Checkpointed, to_dict
from millrace.observe import gauge, log, observe, seconds
from millrace.plane.checkpoints import CheckpointWatch, mend_checkpoint
from millrace.plane.flow import Start
from millrace.stopping import StopRequest
from millrace.wire.client import Appender
from millrace.wire.envelope import pack
from millrace.wire.topics import PROGRESS

LOOK_SECONDS = 0.05
TELL_AGAIN_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0


@dataclass
class Running:
    start: Start
    query: StreamingQuery | None = None
    pause: float = FIRST_PAUSE_SECONDS
    due: float = 0.0
    seen_batch: int = -1
    failures: int = 0
    reached: dict[str, dict[str, int]] | None = None


class DataPlane:
    """`queries` is called every second: a new kind of sink gets its query when the first table names it."""

    def __init__(self, queries: Callable[[], dict[str, Start]], places: Places, appender: Appender) -> None:
        self._wanted = queries
        self._places = places
        self._queries: dict[str, Running] = {}
        self._watches: list[CheckpointWatch] = []
        self._appender = appender

    def run(self, stop_request: StopRequest, on_ready: Callable[[], None]) -> None:
        looked = announced = 0.0
        self._keep_running()
        on_ready()
        while not stop_request.wait(LOOK_SECONDS):
            # Repeated now and then: an accountant that was restarted does not know positions that no longer move.
            again = time.monotonic() - announced > TELL_AGAIN_SECONDS
            announced = time.monotonic() if again else announced
            self._tell_checkpoints(again)
            if time.monotonic() - looked > 1.0:
                looked = time.monotonic()
                self._keep_running()
                if again:
                    self._measure()
        for running in self._queries.values():
            if running.query is not None:
                running.query.stop()

    def _keep_running(self) -> None:
        now = time.monotonic()
        for name, start in self._wanted().items():
            if name not in self._queries:
                self._queries[name] = Running(start)
                checkpoint = self._places.checkpoint(name)
                if torn := mend_checkpoint(checkpoint):
                    observe("trouble", kind="checkpoint", query=name, error=f"deleted after a power cut: {torn}"[:500])
                self._watches.append(CheckpointWatch(name, checkpoint, self._places.durable))
        for name, running in self._queries.items():
            if running.query is not None and running.query.isActive:
                running.pause = max(FIRST_PAUSE_SECONDS, running.pause * 0.99)
                continue
            if running.query is not None:
                observe("trouble", kind="query", query=name, error=str(running.query.exception())[:2000])
                observe("query_restarted", query=name)
                running.failures += 1
                gauge("query_failures", running.failures, query=name)
                running.query, running.due = None, now + running.pause
                running.pause = min(running.pause * 2, LONGEST_PAUSE_SECONDS)
            if now >= running.due:
                running.query = running.start()
                log("query_started", query=name)

    def _tell_checkpoints(self, again: bool) -> None:
        for watch in self._watches:
            moved = watch.look(again=again)
            if moved is not None:
                self._note_reached(moved)
                self._appender.append(PROGRESS, moved.query.encode(), pack(to_dict(moved)), 0)

    def _note_reached(self, moved: Checkpointed) -> None:
        running = self._queries[moved.query]
        if running.reached != moved.ends:
            running.reached, running.failures = moved.ends, 0
            gauge("query_failures", 0, query=moved.query)

    def _measure(self) -> None:
        for name, running in self._queries.items():
            progress = running.query.lastProgress if running.query is not None else None
            if progress is not None and progress["batchId"] != running.seen_batch:
                running.seen_batch = progress["batchId"]
                seconds("batch", progress["durationMs"].get("triggerExecution", 0) / 1000, query=name)


def serve_metrics(port: int) -> int:
    server, _thread = start_http_server(port, addr="127.0.0.1")
    return int(server.server_port)
