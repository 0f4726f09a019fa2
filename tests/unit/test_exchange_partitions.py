"""A tenant's ops stay in the partition that the tenant was first given."""

from pathlib import Path

from sqlalchemy import insert

from millrace.exchange.partitions import OpPartitions
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.wire.topics import chunk_partition, tenant_partition


def test_the_kept_partition_wins_over_the_computed_one(tmp_path: Path) -> None:
    store = ControlStore(f"sqlite:///{tmp_path / 'control.db'}")
    partitions = OpPartitions(store, 4)
    computed = tenant_partition("acme", 4)
    assert partitions.of("acme") == computed
    row = {"folded_name": "acme", "agreement": {}, "revision": 1}
    with store.write() as connection:
        connection.execute(insert(t.tenants).values({**row, "name": "acme", "partition": (computed + 1) % 4}))
    assert partitions.of("acme") == OpPartitions(store, 7).of("acme") == (computed + 1) % 4
    store.close()


def test_tenants_and_chunks_spread_over_all_partitions() -> None:
    assert {tenant_partition(f"tenant{number}", 4) for number in range(100)} == {0, 1, 2, 3}
    assert [tenant_partition("acme", 4), tenant_partition("acme", 2)] == [2, 0], "logs that exist rely on it"
    taken = [chunk_partition("imp_1", number, [2, 3, 4]) for number in range(6)]
    assert sorted(taken[:3]) == [2, 3, 4]
    assert taken[:3] == taken[3:]
