"""What tenants may use, as their agreements say, or else the platform's settings: asked before work is taken in; answers by
refusing or by a pause.

Rates are kept in memory by each server; days, storage and imports are read from the store. What is asked for one tenant costs
the same whatever others have."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime

from sqlalchemy import bindparam, func, select

from millrace.auth.slots import SlotLimit, TenantSlots
from millrace.model.agreement import Agreement
from millrace.model.bucket import Bucket
from millrace.model.errors import Exceeded
from millrace.model.imports import ADMITTED, AMEND, DELETE, HELD, LOAD, PROCESSING, PUBLISHING, REPLAY, STOPPING
from millrace.model.limits import over_limit
from millrace.model.usage import MEASURE_SECONDS, day_of, seconds_left_of_day
from millrace.settings import LimitSettings
from millrace.store import tables as t
from millrace.store.agreements import agreement_of
from millrace.store.engine import ControlStore
from millrace.store.tables import usage
from millrace.store.usage import add_usage
from millrace.upload.flight import weight_of

# A changed agreement, and rows counted elsewhere, are known after this time.
KNOWN_SECONDS = 2.0
SOON_SECONDS = 0.5
IMPORT_ENDS_SECONDS = 2.0
# Of one tenant, by an index: the database adds them up, so that many imports cost this process nothing.
_UNDER_WAY = select(
    func.sum(t.imports.c.counts["read"].as_integer()).label("rows"),
    func.count().filter(t.imports.c.kind.in_((LOAD, DELETE, AMEND, REPLAY))).label("files"),
).where(
    t.imports.c.state.in_((ADMITTED, PROCESSING, PUBLISHING, STOPPING, HELD)),
    t.imports.c.tenant == bindparam("of_tenant"),
)
_TODAY = select(usage.c.rows_accepted + usage.c.rows_rejected).where(
    usage.c.tenant == bindparam("of_tenant"), usage.c.day == bindparam("today")
)
_STORED = (
    select(usage.c.storage_bytes)
    .where(usage.c.tenant == bindparam("of_tenant"), usage.c.storage_bytes.is_not(None))
    .order_by(usage.c.day.desc())
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """What a tenant may use: its agreement's word, or else the settings'."""

    bytes_per_second: int
    requests_per_second: int
    open_imports: int
    rows_per_day: int
    storage_bytes: int


@dataclass(frozen=True, slots=True)
class _Use:
    rows_today: int
    storage: int
    open_imports: int


@dataclass(slots=True)
class _Tenant:
    agreement: Agreement
    limits: TenantLimits
    use: _Use
    until: float
    requests: Bucket
    octets: Bucket
    begun: int = 0
    held_seconds: float = 0.0
    refused: int = 0


# A sender that is held back says so at least this often.
HELD_BACK_SECONDS = 2.0


class Quotas:
    """Used from any thread."""

    def __init__(
        self,
        store: ControlStore,
        limits: LimitSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._defaults = limits or LimitSettings()
        self._clock = clock
        self._tenants: dict[str, _Tenant] = {}
        self._learning: set[str] = set()
        self._throttled: dict[str, tuple[str, float]] = {}
        self._last_throttled: dict[str, float] = {}
        self._lock = threading.RLock()
        self.requests = TenantSlots(SlotLimit("requests", "requests under way", self._defaults.requests))

    def agreement(self, tenant: str) -> Agreement:
        return self._known(tenant).agreement

    def limits(self, tenant: str) -> TenantLimits:
        return self._known(tenant).limits

    def weight(self, tenant: str) -> float:
        """As last known: it is asked for in the event loop, also of tenants that ask for nothing now."""
        known = self._tenants.get(tenant)
        return weight_of(0 if known is None else known.agreement.priority)

    def refuse_request(self, tenant: str) -> None:
        """One request more, if the tenant does not ask more often than it may."""
        known = self._known(tenant)
        with self._lock:
            now = self._clock()
            wait = known.requests.debt_seconds(now, 1)
            if wait > 0:
                raise self._over(known, "requests_per_second", None, wait, "requests a second")
            known.requests.take(now, 1)

    def refuse_rows(self, tenant: str) -> None:
        """Rows of a new import, if what the tenant used so far leaves room for any."""
        known = self._known(tenant)
        with self._lock:
            limits, use = known.limits, known.use
            if (wait := known.octets.debt_seconds(self._clock())) > 0:
                raise self._over(known, "bytes_per_second", None, wait, "bytes a second")
            if use.rows_today >= limits.rows_per_day:
                wait = seconds_left_of_day(datetime.now(UTC))
                raise self._over(known, "rows_per_day", use.rows_today, wait, "rows a day")
            if use.storage >= limits.storage_bytes:
                raise self._over(known, "storage_bytes", use.storage, MEASURE_SECONDS, "bytes of storage")

    def refuse_import(self, tenant: str) -> None:
        """One more open import. Where an agreement names the limit, the log decides, exactly; here the last seconds may be
        missing from the count."""
        known = self._known(tenant)
        with self._lock:
            used, limit = known.use.open_imports + known.begun, known.limits.open_imports
            if known.agreement.quotas.open_imports is None and used >= limit:
                known.refused += 1
                raise over_limit(
                    tenant, "open_imports", "open imports", limit, used=used, remedy="Wait until some have ended.",
                    retry_seconds=IMPORT_ENDS_SECONDS,
                )  # fmt: skip
            known.begun += 1

    def pause(self, tenant: str, size: int) -> float:
        """Takes so many bytes, and says how long their sender is to wait before it sends more."""
        known = self._known(tenant)
        with self._lock:
            now = self._clock()
            known.octets.take(now, size)
            return known.octets.debt_seconds(now)

    def record_throttle(self, tenant: str, seconds: float, import_id: str | None = None) -> None:
        """A sender waited this long for its tenant's quota or share."""
        # However old: while it waited, nobody may have asked.
        known = self._tenants.get(tenant) or self._learn(tenant)
        with self._lock:
            known.held_seconds += seconds
            if import_id is not None:
                self._throttled[import_id] = tenant, self._throttled.get(import_id, (tenant, 0.0))[1] + seconds
                self._last_throttled[import_id] = self._clock()

    def is_held_back(self, import_id: str) -> bool:
        """Whether its sender waits now for the quota or the share of its tenant."""
        with self._lock:
            last = self._last_throttled.get(import_id)
            return last is not None and self._clock() - last < HELD_BACK_SECONDS

    def throttled_imports(self, tenant: str) -> dict[str, float]:
        """How long each import under way was held back."""
        with self._lock:
            return {import_id: seconds for import_id, (of, seconds) in self._throttled.items() if of == tenant}

    def over(self, import_id: str) -> None:
        with self._lock:
            self._throttled.pop(import_id, None)
            self._last_throttled.pop(import_id, None)

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

    def _over(self, known: _Tenant, quota: str, used: int | None, wait: float, words: str) -> Exceeded:
        known.refused += 1
        limit: int = getattr(known.limits, quota)
        frees = datetime.fromtimestamp(time.time() + min(wait, 86_400.0), UTC).isoformat(timespec="seconds")
        now = "" if used is None else f" It has used {used:,}."
        facts = {"quota": quota, "limit": str(limit), "frees_at": frees}
        return Exceeded(
            f"{known.agreement.tenant} may use {limit:,} {words}.{now}",
            remedy=f"Ask again at {frees}." if quota != "storage_bytes" else "Delete rows, or have more agreed.",
            facts=facts if used is None else {**facts, "used": str(used)},
            retry_seconds=min(wait, 86_400.0),
        )

    async def prepare(self, tenant: str) -> None:
        """Reads what is known of the tenant if that is due, in a thread. What is asked next need not."""
        known, now = self._tenants.get(tenant), self._clock()
        if known is not None and now < known.until and (now <= known.until - SOON_SECONDS or tenant in self._learning):
            return
        self._learning.add(tenant)
        try:
            await asyncio.to_thread(self._learn, tenant)
        finally:
            self._learning.discard(tenant)

    def _known(self, tenant: str) -> _Tenant:
        known = self._tenants.get(tenant)
        return known if known is not None and self._clock() < known.until else self._learn(tenant)

    def _learn(self, tenant: str) -> _Tenant:
        # Not under the lock: the event loop takes it too.
        agreement, use = self._read(tenant)
        limits = self._limits(agreement)
        with self._lock:
            now = self._clock()
            known = self._tenants.get(tenant)
            if known is None:
                requests, octets = Bucket(limits.requests_per_second, now), Bucket(limits.bytes_per_second, now)
                known = self._tenants[tenant] = _Tenant(agreement, limits, use, 0.0, requests, octets)
            known.agreement, known.limits, known.use, known.begun = agreement, limits, use, 0
            known.until = now + KNOWN_SECONDS
            known.requests = _bucket(known.requests, limits.requests_per_second, now)
            known.octets = _bucket(known.octets, limits.bytes_per_second, now)
            return known

    def _limits(self, agreement: Agreement) -> TenantLimits:
        names = [one.name for one in fields(TenantLimits)]
        agreed = {name: getattr(agreement.quotas, name) for name in names}
        return TenantLimits(
            **{name: getattr(self._defaults, name) if agreed[name] is None else agreed[name] for name in names}
        )

    def _read(self, tenant: str) -> tuple[Agreement, _Use]:
        whose = {"of_tenant": tenant}
        with self._store.read() as connection:
            agreement = agreement_of(connection, tenant) or Agreement(tenant)
            today = connection.execute(_TODAY, {**whose, "today": day_of(time.time_ns() // 1000)}).scalar()
            stored = connection.execute(_STORED, whose).scalar()
            under_way = connection.execute(_UNDER_WAY, whose).one()
        return agreement, _Use((today or 0) + int(under_way.rows or 0), stored or 0, under_way.files)


def _bucket(known: Bucket, rate: int, now: float) -> Bucket:
    return known if known.rate == rate else Bucket(rate, now)
