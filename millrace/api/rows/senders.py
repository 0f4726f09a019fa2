"""The senders in use on this server, and how their rows get into the table log.

Each sender has one user at a time: a connection takes over from the one before, a request waits for the other's end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from millrace.api.admission import Admission
from millrace.api.op_log import OpLog
from millrace.api.rows.appends import Appends
from millrace.api.sealing import Sealing
from millrace.auth.quotas import Quotas
from millrace.auth.slots import SlotLimit, TenantSlots
from millrace.lake.store import Store as Files
from millrace.settings import LimitSettings
from millrace.store.engine import ControlStore
from millrace.upload.batch import AppendKey
from millrace.upload.gather import Gatherer, GatherLimits

MOST_SENDERS = 1000
RETRY_SECONDS = 5.0


def _wait_for_its_end() -> None:
    """A request is not asked to leave, because it is short."""


@dataclass(frozen=True, slots=True)
class _Hold:
    ask_to_leave: Callable[[], None]
    left: "asyncio.Future[None]"


class Senders:
    """Of one server."""

    def __init__(
        self,
        store: ControlStore,
        op_log: OpLog,
        admission: Admission,
        sealing: Sealing,
        quotas: Quotas,
        most_of_tenant: int = LimitSettings().senders,
        gathering: GatherLimits | None = None,
    ) -> None:
        self._sealing = sealing
        self._quotas = quotas
        self.appends = Appends(store, op_log, admission, sealing, self._on_end)
        self.gatherer = Gatherer(self.appends.append, gathering)
        self._in_use: dict[tuple[str, str, str], _Hold] = {}
        self._slots = TenantSlots(
            SlotLimit(
                "senders", "senders in use", most_of_tenant, MOST_SENDERS, retry_seconds=RETRY_SECONDS,
                remedy="Close some, or send the rows of several sources by one sender.",
            )
        )  # fmt: skip

    def errors(self, append_key: AppendKey) -> Files:
        return self._sealing.errors(append_key.tenant, append_key.table)

    async def pace(self, tenant: str, size: int) -> None:
        """Takes the bytes from the tenant's rate. Returns when the tenant may send again."""
        await self._quotas.prepare(tenant)
        seconds = self._quotas.pause(tenant, size)
        if seconds > 0:
            self._quotas.record_throttle(tenant, seconds)
            await asyncio.sleep(seconds)

    def _on_end(self, append_key: AppendKey) -> None:
        self.gatherer.ended(append_key)

    @asynccontextmanager
    async def exclusive(
        self, append_key: AppendKey, sender: str, ask_to_leave: Callable[[], None] = _wait_for_its_end
    ) -> AsyncIterator[None]:
        """Within the block nobody else on this server sends rows as this sender."""
        key = (append_key.tenant, append_key.table, sender)
        while key in self._in_use:
            self._in_use[key].ask_to_leave()
            await asyncio.shield(self._in_use[key].left)
        hold = self._in_use[key] = _Hold(ask_to_leave, asyncio.get_running_loop().create_future())
        try:
            yield
        finally:
            del self._in_use[key]
            hold.left.set_result(None)

    @contextmanager
    def counted(self, append_key: AppendKey, sender: str) -> Iterator[None]:
        """Within the block the sender has one more user. Refused if the tenant uses too many; whoever takes over from another
        user is not, because that one leaves."""
        if (append_key.tenant, append_key.table, sender) not in self._in_use:
            self._slots.refuse_one_more(append_key.tenant)
        with self._slots.taken(append_key.tenant):
            yield
