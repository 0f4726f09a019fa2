"""Named events: each writes its structured log line and its metric together, so the two never disagree.

No event carries a secret or a cell value. Levels: error = data at risk or an operator is needed; info = normal life."""

import logging
import sys
from typing import Any

import orjson
from prometheus_client import Counter, Gauge, Histogram

_LOGGER = logging.getLogger("millrace")

_COUNTERS: dict[str, Counter] = {
    "op_applied": Counter("millrace_ops_total", "Ops applied by the controller", ["kind", "refused"]),
    "chunk_appended": Counter("millrace_chunks_appended_total", "Chunks that Kafka has confirmed", ["lane"]),
    "bytes_appended": Counter("millrace_plain_bytes_appended_total", "Plain bytes of chunks that Kafka has confirmed"),
    "rows_judged": Counter("millrace_rows_judged_total", "Rows by verdict", ["verdict"]),
    "chunks_durable": Counter("millrace_chunks_durable_total", "Chunks durable in a sink", ["sink"]),
    "import_settled": Counter("millrace_imports_settled_total", "Imports that have ended", ["state"]),
    "query_restarted": Counter(
        "millrace_query_restarts_total", "Streaming queries started again after a failure", ["query"]
    ),
    "webhook": Counter("millrace_webhook_attempts_total", "Attempts to deliver events to subscribers", ["outcome"]),
    "trouble": Counter("millrace_errors_total", "Failures by kind", ["kind"]),
}
_GAUGES: dict[str, Gauge] = {
    "lag": Gauge("millrace_lag_records", "Records not yet processed", ["topic", "query"]),
    "open_imports": Gauge("millrace_open_imports", "Imports under way"),
    "query_failures": Gauge("millrace_query_failures", "Failures of a query since it last got on", ["query"]),
    "unsent_events": Gauge("millrace_unsent_events", "Events waiting for Kafka"),
    "event_loop_stall": Gauge(
        "millrace_event_loop_stall_seconds_max",
        "The longest time of the last minute in which the server answered nobody",
    ),
    "event_followers": Gauge("millrace_event_followers", "Connections that follow events"),
    "webhooks_waiting": Gauge("millrace_webhooks_waiting", "Events queued for subscribers and not yet delivered"),
}
_SECONDS: dict[str, Histogram] = {
    "batch": Histogram("millrace_batch_seconds", "Seconds per micro-batch", ["query"]),
    "request": Histogram("millrace_request_seconds", "Seconds per HTTP request", ["method", "status"]),
}
_QUIET = {"chunk_appended", "bytes_appended", "rows_judged", "chunks_durable", "op_applied", "webhook"}


def observe(event: str, amount: float = 1, **labels: Any) -> None:
    """Counts the event and, unless it belongs to the steady flow of data, logs it."""
    counter = _COUNTERS[event]
    names = counter._labelnames
    child = counter.labels(**{name: str(labels[name]) for name in names}) if names else counter
    child.inc(amount)
    if event not in _QUIET:
        log(event, level=logging.ERROR if event == "trouble" else logging.INFO, **labels)


def gauge(name: str, value: float, **labels: str) -> None:
    metric = _GAUGES[name]
    (metric.labels(**labels) if labels else metric).set(value)


def seconds(name: str, value: float, **labels: str) -> None:
    _SECONDS[name].labels(**labels).observe(value)


def log(event: str, level: int = logging.INFO, **fields: Any) -> None:
    _LOGGER.log(level, event, extra={"fields": fields})


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname,
            "event": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for noisy in ("py4j", "httpx2", "httpcore2", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
