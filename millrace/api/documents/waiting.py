"""What an import that does not go on waits for: worked out when someone looks, from its own rows of the store and the queues
of its table. The kinds are listed in docs/rest.md."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from sqlalchemy import Connection, select

from millrace.exchange.queues import ParkedTarget, parked_targets
from millrace.model.imports import ADMITTED, HELD, TERMINAL, Import
from millrace.model.moments import iso
from millrace.model.sinks import ERROR_STORE
from millrace.store import tables as t

# So long nothing need happen to an import that is well.
QUIET_US = 3_000_000
STALLED_AFTER_US = 120_000_000
_DOCTOR = "See `millrace doctor`, and the logs folder of the home."
WaitDocument = dict[str, Any]


class HeldBack(Protocol):
    """Uploads that wait for the quota or the share of their tenant."""

    def is_held_back(self, import_id: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class PlatformOutlook:
    """What the store does not know. `data_plane`: `ok`, or what is wrong with it. `keys_away`: of a tenant, whether chunks
    are held because its keys are out of reach. `lease_seconds`: how long an upload may be silent."""

    data_plane: Callable[[], str]
    keys_away: Callable[[str], bool]
    quotas: HeldBack
    lease_seconds: float


def waits(kind: str, text: str, remedy: str, since_us: int | None = None, **more: Any) -> WaitDocument:
    """`text` goes on behind "waits for"."""
    return {"kind": kind, "text": text, "remedy": remedy, "since": iso(since_us), **more}


class WaitReasons:
    """For the documents of one request: the queues of a table and the health of the data plane are looked up once."""

    def __init__(self, connection: Connection, outlook: PlatformOutlook | None = None) -> None:
        self._connection = connection
        self._outlook = outlook
        self._parked: dict[tuple[str, str], dict[str, ParkedTarget]] = {}
        self._data_plane: str | None = None

    def parked(self, imp: Import) -> dict[str, ParkedTarget]:
        """The targets of its table that take nothing at the moment."""
        place = imp.tenant, imp.table
        if place not in self._parked:
            self._parked[place] = parked_targets(self._connection, *place)
        return self._parked[place]

    def of_request(self, row: Any) -> WaitDocument:
        """Of an import whose op was asked for. It waits if the controller has seen it and not applied it."""
        if not row.result:
            return waits("log", "the controller, which has not evaluated it yet", _DOCTOR, row.requested_us)
        table = f"{row.tenant}/{row.subject}"
        text = f"its turn: {table} takes one import at a time"
        before = self._under_way(row.tenant, row.subject)
        if before is not None:
            remedy = f"See `millrace status {before}`."
            return waits("turn", f"{text}, and {before} is under way", remedy, row.requested_us, **{"import": before})
        return waits("turn", text, "See `millrace status`.", row.requested_us)

    def _under_way(self, tenant: str, table: str) -> str | None:
        of_table = t.imports.c.tenant == tenant, t.imports.c.table_name == table
        wanted = select(t.imports.c.id).where(*of_table, t.imports.c.state.not_in(TERMINAL))
        found: str | None = self._connection.execute(wanted.order_by(t.imports.c.id).limit(1)).scalar()
        return found

    def of(self, imp: Import, touched_us: int, seen_us: int | None) -> WaitDocument | None:
        """None: it is over, or nothing is in its way. `seen_us`: when bytes of its upload last arrived."""
        if imp.is_over:
            return None
        if imp.state == HELD:
            error = imp.error or {"message": "A quality rule is broken.", "remedy": ""}
            return waits("rule", f"someone to release or cancel it: {error['message']}", error["remedy"], touched_us)
        if imp.state == ADMITTED:
            return self._of_upload(imp, seen_us or imp.begun_us)
        quiet_us = time.time_ns() // 1000 - touched_us
        if quiet_us < QUIET_US:
            return None
        return self._of_data_plane(imp, touched_us) or self._of_sink(imp) or self._of_silence(imp, touched_us, quiet_us)

    def _of_upload(self, imp: Import, seen_us: int) -> WaitDocument | None:
        if self._outlook is None:
            return None
        if self._outlook.quotas.is_held_back(imp.id):
            text = f"{imp.tenant}'s bytes per second, or its share of the platform; the upload is slowed down"
            return waits("quota", text, f"See `millrace usage --tenant {imp.tenant}`; more can be agreed.", seen_us)
        if time.time_ns() // 1000 - seen_us < QUIET_US:
            return None
        fails = f"After {self._outlook.lease_seconds:g} s without bytes the import fails."
        return waits("upload", "the rest of its file, of which nothing arrives", f"Send it. {fails}", seen_us)

    def _of_data_plane(self, imp: Import, touched_us: int) -> WaitDocument | None:
        if self._outlook is None:
            return None
        if self._data_plane is None:
            self._data_plane = self._outlook.data_plane()
        if self._data_plane != "ok":
            remedy = "It is started again by itself. `millrace doctor` and logs/data-plane.log say more."
            return waits("data_plane", f"the data plane: {self._data_plane}", remedy, touched_us)
        sent = (imp.announced or {}).get("chunks")
        if (sent is None or imp.counts.chunks < sent) and self._outlook.keys_away(imp.tenant):
            remedy = "The operator must make the key service answer (`MILLRACE_KMS__…`)."
            return waits("key", f"the encryption keys of {imp.tenant}, which cannot be reached", remedy, touched_us)
        return None

    def _of_sink(self, imp: Import) -> WaitDocument | None:
        parked = self.parked(imp)
        behind = [sink for sink in imp.sinks if sink in parked and imp.durable.get(sink, 0) < imp.counts.chunks]
        if imp.counts.rejected and ERROR_STORE in parked:
            behind.append(ERROR_STORE)
        if not behind:
            return None
        sink, table = behind[0], f"{imp.tenant}/{imp.table}"
        target = parked[sink]
        others = f" (and for {', '.join(behind[1:])})" if len(behind) > 1 else ""
        text = f"sink {sink}{others}, which has taken nothing since {_clock(target.since)}: {_sentence(target.reason)}"
        remedy = (
            f"Then `millrace sink resume {table} {sink}`; or give up what waits: `millrace sink waive {table} {sink}`."
        )
        return waits(
            "sink",
            f"{text} {_next_try(target)}",
            remedy,
            int(target.since * 1e6),
            sink=sink,
            next_try=iso(int(target.next_try * 1e6)),
        )

    def _of_silence(self, imp: Import, touched_us: int, quiet_us: int) -> WaitDocument | None:
        if quiet_us < STALLED_AFTER_US:
            return None
        sent = (imp.announced or {}).get("chunks", imp.counts.chunks)
        left = sent - imp.counts.chunks
        what = f"validation of {left:,} chunks" if left > 0 else "its sinks"
        text = f"{what}; nothing has happened for {quiet_us // 1_000_000:,} s"
        return waits("progress", text, _DOCTOR, touched_us)


def _next_try(target: ParkedTarget) -> str:
    if target.next_try <= time.time():
        return "It is being tried now."
    return f"The next try, number {target.tries + 1:,}, is at {_clock(target.next_try)}."


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _sentence(reason: str) -> str:
    reason = " ".join(reason.split()) or "it gave no reason"
    return reason if reason[-1] in ".!?" else f"{reason}."
