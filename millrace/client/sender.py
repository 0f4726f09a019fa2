"""A sender: a named sequence of rows into a table, over connections that may break. Rejected rows come back.

Rows are numbered, and the platform knows the last one it has. After a break the sender goes on behind it: no row is lost
and none is repeated. Memory is bounded: `send` waits while too much is unacknowledged."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

import orjson

from millrace.client.connection import Connection
from millrace.client.errors import Problem, Unreachable, problem_from
from millrace.client.imports import ImportClient
from millrace.client.patience import PATIENCE_SECONDS
from millrace.client.rejected import RejectedRowClient
from millrace.client.send_buffer import SendBuffer
from millrace.client.sender_link import SenderLink, linked
from millrace.client.sender_summary import AppendedRows, Rejected, Summary, share_of
from millrace.model.errors import MillraceError
from millrace.model.frames import OUT_OF_STEP, WINDOW_BYTES, pack_frame, whole_rows
from millrace.model.names import new_id

# Smaller than the platform's window, so that the platform never stops reading and keepalives get through.
SEND_WINDOW_BYTES = WINDOW_BYTES // 2
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0

OnRejected = Callable[[list[Rejected]], None]


class Sender:
    """Use it in a `with` block: leaving the block waits until every row has ended. One thread calls `send`.

    `on_rejected` is called from a thread of the sender's own. A sender that has a name may be taken up again later, by this
    process or another: `seq` is then the number of its last row."""

    def __init__(
        self,
        connection: Connection,
        tenant: str,
        table: str,
        *,
        name: str | None = None,
        span: str | None = None,
        on_rejected: OnRejected | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self.name = name or new_id("st")
        self._endpoint = connection.endpoint
        self._imports = ImportClient(connection)
        self._rejected = RejectedRowClient(connection)
        self._target = (tenant, table, self.name, span)
        self._on_rejected = on_rejected or (lambda rows: None)
        self._patience = patience
        self._buffer = SendBuffer()
        self._unended: dict[str, AppendedRows] = {}
        self._orphans: dict[str, AppendedRows] = {}
        self._summary = Summary(self.name)
        self._was_ready = self._is_ready = self._is_closing = False
        self._broken: MillraceError | None = None
        self._failure: MillraceError | None = None
        # Guards everything above.
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        with self._changed:
            self._wait_until(lambda: self._was_ready)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.close()

    @property
    def seq(self) -> int:
        """The number of the last row that is durable in Kafka; at first, the last one of an earlier connection."""
        with self._changed:
            return self._buffer.acknowledged

    @property
    def summary(self) -> Summary:
        with self._changed:
            return self._summary

    def send(self, rows: bytes | Iterable[Mapping[str, Any]]) -> None:
        """JSON Lines, or objects. Returns when they are queued; waits while too much is unacknowledged."""
        body = whole_rows(rows if isinstance(rows, bytes) else b"\n".join(map(orjson.dumps, rows)))
        with self._changed:
            self._wait_until(lambda: self._buffer.size < SEND_WINDOW_BYTES)
            self._buffer.add(body)
            self._changed.notify_all()

    def flush(self) -> int:
        """Waits until every row sent is durable in Kafka; the number of the last."""
        with self._changed:
            self._wait_until(lambda: self._buffer.is_empty)
            return self._buffer.acknowledged

    def finish(self) -> Summary:
        """Waits until every row sent has ended: it is durable in every sink, or was given to `on_rejected`."""
        self.flush()
        with self._changed:
            self._wait_until(lambda: not self._unended)
            orphans, self._orphans = self._orphans, {}
        for import_id, place in orphans.items():
            self._ask_for(import_id, place)
        return self.summary

    def close(self) -> None:
        """Ends the connection; rows that were not sent yet are lost."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        """With the lock held; raises what the sender failed with."""
        self._changed.wait_for(lambda: self._failure is not None or condition())
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._keep_linked()
        except Exception as failed:
            # Otherwise whoever waits for this thread would wait for ever.
            self._fail(MillraceError(f"The sender cannot go on: {failed!r}.", code="stream_failed"))

    def _keep_linked(self) -> None:
        pause, progressed, seq = FIRST_PAUSE_SECONDS, time.monotonic(), -1
        while not self._is_closing:
            try:
                self._use_a_link()
            except MillraceError as failed:
                if self.seq > seq:
                    pause, progressed, seq = FIRST_PAUSE_SECONDS, time.monotonic(), self.seq
                if not self._was_ready or not _may_pass(failed) or time.monotonic() > progressed + self._patience:
                    return self._fail(failed)
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closing, timeout=pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _fail(self, failed: MillraceError) -> None:
        with self._changed:
            self._failure = self._failure or failed
            self._changed.notify_all()

    def _use_a_link(self) -> None:
        """Sends until the sender is closed; raises what broke the connection."""
        with linked(self._endpoint, *self._target) as link:
            self._is_ready, self._broken = False, None
            receiver = threading.Thread(target=self._receive, args=(link,), name="sender-receiver", daemon=True)
            receiver.start()
            broken = None
            try:
                self._pump(link)
            except MillraceError as failed:
                broken = failed
            finally:
                link.close()
                receiver.join()
                self._orphan()
            if broken is not None:
                # The platform's last frame explains the break better than the socket's error.
                raise self._broken or broken

    def _pump(self, link: SenderLink) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closing or self._broken or self._may_send())
                if self._broken is not None:
                    raise self._broken
                frame = None if self._is_closing else self._buffer.next_frame()
            if frame is None:
                return
            link.send(pack_frame(frame.first, frame.rows))

    def _may_send(self) -> bool:
        return self._is_ready and self._buffer.has_unsent and self._buffer.sent_size < SEND_WINDOW_BYTES

    def _receive(self, link: SenderLink) -> None:
        broken: MillraceError = Unreachable(self._endpoint.url, "the platform closed the connection")
        try:
            for frame in link.frames():
                self._hear(frame)
        except MillraceError as failed:
            broken = failed
        except Exception as failed:
            self._fail(MillraceError(f"The sender cannot go on: {failed!r}.", code="listener_failed"))
        with self._changed:
            self._broken = self._broken or broken
            self._changed.notify_all()

    def _hear(self, frame: dict[str, Any]) -> None:
        match frame["type"]:
            case "rejected":
                self._on_rejected(frame["rows"])
            case "error":
                problem = frame["problem"]
                raise problem_from(problem["status"], orjson.dumps(problem))
            case kind:
                with self._changed:
                    self._note(kind, frame)
                    self._changed.notify_all()

    def _note(self, kind: str, frame: dict[str, Any]) -> None:
        match kind:
            case "ready" if not self._was_ready:
                self._buffer.begin(frame["seq"])
                self._was_ready = self._is_ready = True
            case "ready":
                unheard = self._buffer.begin_again(frame["seq"])
                known = self._summary
                self._summary = replace(known, rows=known.rows + unheard, unheard=known.unheard + unheard)
                self._is_ready = True
            case "ack":
                self._buffer.acknowledge(frame["seq"])
                place = self._unended[frame["import"]] = AppendedRows(frame["first"], frame["seq"], frame["row"])
                known = self._summary
                rows, appends = known.rows + place.rows, known.appends + 1
                self._summary = replace(known, rows=rows, appends=appends, version=frame["version"])
            case "end":
                self._unended.pop(frame["import"], None)
                self._summary = self._summary.after(frame, frame["error"])

    def _orphan(self) -> None:
        """The broken connection cannot report how these ended: `finish` asks for them."""
        with self._changed:
            self._orphans |= self._unended
            self._unended.clear()
            self._changed.notify_all()

    def _ask_for(self, import_id: str, place: AppendedRows) -> None:
        document = self._imports.wait(import_id)
        rejected = self._rejected.list(import_id) if document["rows"]["rejected"] else ()
        mine = [place.numbered(row) for row in rejected if place.holds(row["row"])]
        if mine:
            self._on_rejected(mine)
        with self._changed:
            self._summary = self._summary.after(share_of(document, place, len(mine)), document["error"])


def _may_pass(failed: MillraceError) -> bool:
    """Whether another connection may go on where this one broke; a long line at an exclusive table gets shorter."""
    return isinstance(failed, Problem | Unreachable) and (failed.may_pass or failed.code in (OUT_OF_STEP, "under_way"))
