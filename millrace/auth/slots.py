"""Counts what each tenant has open on this server, such as requests or connections, and refuses more than it may have.

A server has a bound for all tenants together too. When that is reached, only tenants that have their share of it are
refused, so that a few busy ones cannot lock out all others."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from millrace.model.errors import Exceeded
from millrace.model.limits import over_limit

# What tenants below their share may have besides, all together, is as much again.
SPARE_TIMES = 2


@dataclass(frozen=True, slots=True)
class SlotLimit:
    """`name` in the settings; how many of a tenant, and of all together if that is bounded."""

    name: str
    words: str
    of_tenant: int
    of_all: int | None = None
    remedy: str = "Ask again when some of them have ended, and for fewer at once."
    retry_seconds: float = 1.0


class TenantSlots:
    """Used from one event loop."""

    def __init__(self, limit: SlotLimit) -> None:
        self.limit = limit
        self._taken: Counter[str] = Counter()
        self.total = 0

    def refuse_one_more(self, tenant: str, *, is_platform: bool = False) -> None:
        """The platform's own are bounded by the server alone."""
        has = self._taken.get(tenant, 0)
        if (has >= self.limit.of_tenant and not is_platform) or self._is_full(has):
            raise self._refusal(tenant, has)

    @contextmanager
    def taken(self, tenant: str) -> Iterator[None]:
        """One more of the tenant while the block runs."""
        self._taken[tenant] += 1
        self.total += 1
        try:
            yield
        finally:
            self.total -= 1
            self._taken[tenant] -= 1
            if not self._taken[tenant]:
                del self._taken[tenant]

    @contextmanager
    def one_more(self, tenant: str) -> Iterator[None]:
        self.refuse_one_more(tenant)
        with self.taken(tenant):
            yield

    def _is_full(self, has: int) -> bool:
        of_all = self.limit.of_all
        if of_all is None or self.total < of_all:
            return False
        return has >= max(1, of_all // len(self._taken)) or self.total >= SPARE_TIMES * of_all

    def _refusal(self, tenant: str, has: int) -> Exceeded:
        limit = self.limit
        return over_limit(
            tenant, limit.name, limit.words, limit.of_tenant, used=has, remedy=limit.remedy,
            retry_seconds=limit.retry_seconds,
        )  # fmt: skip
