"""What tenants may use, as their agreements say: asked before work is taken in; answers by refusing or by a pause.

Rates are kept in memory by each server; days and storage are read from what was metered."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import bindparam, select

from millrace.model.agreement import Agreement, QuotaLimits
from millrace.model.bucket import Bucket
from millrace.model.errors import Exceeded
from millrace.model.imports import ADMITTED, HELD, PROCESSING, PUBLISHING, STOPPING
from millrace.model.usage import MEASURE_SECONDS, day_of, seconds_left_of_day
from millrace.store import tables as t
from millrace.store.agreements import agreement_of
from millrace.store.engine import ControlStore
from millrace.store.tables import usage
from millrace.store.usage import add_usage
from millrace.upload.flight import weight_of

# A changed agreement, and rows counted elsewhere, are known after this time.
KNOWN_SECONDS = 2.0
SOON_SECONDS = 0.5
_UNBOUNDED = QuotaLimits()
_UNDER_WAY = select(t.imports.c.counts).where(
    t.imports.c.state.in_((ADMITTED, PROCESSING, PUBLISHING, STOPPING, HELD)),
    t.imports.c.tenant == bindparam("of_tenant"),
)


@dataclass(slots=True)
class _Tenant:
    agreement: Agreement
    rows_today: int
    storage: int
    until: float
    requests: Bucket | None = None
    octets: Bucket | None = None
    held_seconds: float = 0.0
    refused: int = 0


class Quotas:
    """Used from any thread."""

    def __init__(self, store: ControlStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._tenants: dict[str, _Tenant] = {}
        self._throttled: dict[str, tuple[str, float]] = {}
        self._lock = threading.RLock()

    def agreement(self, tenant: str) -> Agreement:
        return self._known(tenant).agreement

    def weight(self, tenant: str) -> float:
        return weight_of(self._known(tenant).agreement.priority)

    def refuse_request(self, tenant: str) -> None:
        """One request more, if the tenant does not ask more often than was agreed."""
        known = self._known(tenant)
        with self._lock:
            if known.requests is None:
                return
            now = self._clock()
            wait = known.requests.debt_seconds(now, 1)
            if wait > 0:
                raise self._over(known, "requests_per_second", known.requests.rate, None, wait, "requests a second")
            known.requests.take(now, 1)

    def refuse_rows(self, tenant: str) -> None:
        """Rows of a new import, if what the tenant used so far leaves room for any."""
        known = self._known(tenant)
        with self._lock:
            quotas, now = known.agreement.quotas, self._clock()
            if known.octets is not None and (wait := known.octets.debt_seconds(now)) > 0:
                raise self._over(known, "bytes_per_second", known.octets.rate, None, wait, "bytes a second")
            if quotas.rows_per_day is not None and known.rows_today >= quotas.rows_per_day:
                wait = seconds_left_of_day(datetime.now(UTC))
                raise self._over(known, "rows_per_day", quotas.rows_per_day, known.rows_today, wait, "rows a day")
            if quotas.storage_bytes is not None and known.storage >= quotas.storage_bytes:
                size, wait = quotas.storage_bytes, MEASURE_SECONDS
                raise self._over(known, "storage_bytes", size, known.storage, wait, "bytes of storage")

    def pause(self, tenant: str, size: int) -> float:
        """Takes so many bytes, and says how long their sender is to wait before it sends more."""
        known = self._known(tenant)
        with self._lock:
            if known.octets is None:
                return 0.0
            now = self._clock()
            known.octets.take(now, size)
            return known.octets.debt_seconds(now)

    def record_throttle(self, tenant: str, seconds: float, import_id: str | None = None) -> None:
        """A sender waited this long for its tenant's quota or share."""
        known = self._known(tenant)
        with self._lock:
            known.held_seconds += seconds
            if import_id is not None:
                self._throttled[import_id] = tenant, self._throttled.get(import_id, (tenant, 0.0))[1] + seconds

    def throttled_imports(self, tenant: str) -> dict[str, float]:
        """How long each import under way was held back."""
        with self._lock:
            return {import_id: seconds for import_id, (of, seconds) in self._throttled.items() if of == tenant}

    def over(self, import_id: str) -> None:
        with self._lock:
            self._throttled.pop(import_id, None)

    def write(self) -> None:
        """Meters what was refused and held back since; to be called once in a while."""
        day, used = day_of(time.time_ns() // 1000), []
        with self._lock:
            for name, known in self._tenants.items():
                if known.refused or known.held_seconds:
                    waited = {"refused": known.refused, "held_seconds": known.held_seconds}
                    used.append({"tenant": name, "day": day, **waited})
                    known.refused, known.held_seconds = 0, 0.0
        if used:
            with self._store.write() as connection:
                add_usage(connection, used)

    def forget(self, tenant: str) -> None:
        with self._lock:
            self._tenants.pop(tenant, None)

    def _over(self, known: _Tenant, quota: str, limit: float, used: int | None, wait: float, words: str) -> Exceeded:
        known.refused += 1
        frees = datetime.fromtimestamp(time.time() + min(wait, 86_400.0), UTC).isoformat(timespec="seconds")
        now = "" if used is None else f" It has used {used:,}."
        facts = {"quota": quota, "limit": f"{limit:.0f}", "frees_at": frees}
        return Exceeded(
            f"{known.agreement.tenant} may use {limit:,.0f} {words}.{now}",
            remedy=f"Ask again at {frees}." if quota != "storage_bytes" else "Delete rows, or have more agreed.",
            facts=facts if used is None else {**facts, "used": str(used)},
            retry_seconds=min(wait, 86_400.0),
        )

    async def prepare(self, tenant: str) -> None:
        """Reads what is known of the tenant if that is due, in a thread. What is asked next need not."""
        known = self._tenants.get(tenant)
        if known is None or self._clock() > known.until - SOON_SECONDS:
            await asyncio.to_thread(self._learn, tenant)

    def _known(self, tenant: str) -> _Tenant:
        known = self._tenants.get(tenant)
        return known if known is not None and self._clock() < known.until else self._learn(tenant)

    def _learn(self, tenant: str) -> _Tenant:
        # Not under the lock: the event loop takes it too.
        agreement, rows, storage = self._read(tenant)
        with self._lock:
            now = self._clock()
            known = self._tenants.get(tenant)
            if known is None:
                known = self._tenants[tenant] = _Tenant(agreement, rows, storage, 0.0)
            known.agreement, known.rows_today, known.storage = agreement, rows, storage
            known.until = now + KNOWN_SECONDS
            known.requests = _bucket(known.requests, agreement.quotas.requests_per_second, now)
            known.octets = _bucket(known.octets, agreement.quotas.bytes_per_second, now)
            return known

    def _read(self, tenant: str) -> tuple[Agreement, int, int]:
        today = day_of(time.time_ns() // 1000)
        with self._store.read() as connection:
            agreement = agreement_of(connection, tenant) or Agreement(tenant)
            if agreement.quotas == _UNBOUNDED:
                return agreement, 0, 0
            of = select(usage).where(usage.c.tenant == tenant)
            row = connection.execute(of.where(usage.c.day == today)).first()
            measured = of.where(usage.c.storage_bytes.is_not(None)).order_by(usage.c.day.desc()).limit(1)
            last = connection.execute(measured).first()
            under_way = connection.execute(_UNDER_WAY, {"of_tenant": tenant}).scalars()
            rows = sum(int(counts["read"]) for counts in under_way)
        rows += 0 if row is None else row.rows_accepted + row.rows_rejected
        return agreement, rows, 0 if last is None else last.storage_bytes


def _bucket(known: Bucket | None, rate: int | None, now: float) -> Bucket | None:
    if rate is None:
        return None
    return known if known is not None and known.rate == rate else Bucket(rate, now)
