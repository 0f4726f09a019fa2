"""Which partition of `table-ops` holds the ops of a tenant: for good the one it was first given.

The controller keeps it with the tenant, in the control store. The server and the accountant read it before they append an op.
If it is lost with the store, the replayed log gives it back."""

from sqlalchemy import select

from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.wire.topics import tenant_partition

_PINNED = select(t.tenants.c.partition)


class OpPartitions:
    """Used from any thread."""

    def __init__(self, store: ControlStore, partitions: int) -> None:
        self._store = store
        self._partitions = partitions
        self._pinned: dict[str, int] = {}

    def knows(self, tenant: str) -> bool:
        """Whether `of` answers without asking the store."""
        return tenant in self._pinned

    def of(self, tenant: str) -> int:
        if tenant not in self._pinned:
            with self._store.read() as connection:
                pinned = connection.execute(_PINNED.where(t.tenants.c.name == tenant)).scalar()
            if pinned is None:
                return tenant_partition(tenant, self._partitions)
            self._pinned[tenant] = int(pinned)
        return self._pinned[tenant]
