"""The newest raw chunks of some imports, read back from a real log: by version, as far as they have not been trimmed."""

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from millrace.embed.broker import Broker
from millrace.model.chunk import ChunkHeader
from millrace.wire.client import Appender, Cluster, Topics
from millrace.wire.envelope import checksum, compress, pack_chunk, pack_close, unpack_rows, unpack_stamp
from millrace.wire.offsets import end_offsets
from millrace.wire.recent import RecentChunks
from millrace.wire.topics import RAW_INPUT, catalogue


@pytest.fixture(scope="module")
def cluster(kafka: Broker) -> Cluster:
    cluster = Cluster(kafka.bootstrap_servers)
    Topics(cluster).ensure(catalogue(4), 1)
    return cluster


@pytest.fixture
def appender(cluster: Cluster) -> Iterator[Appender]:
    appender = Appender(cluster)
    yield appender
    appender.close()


def send(appender: Appender, import_id: str, version: int, partition: int) -> None:
    body = f"{import_id} {version}".encode()
    payload = compress(body)
    header = ChunkHeader(import_id, 0, version, "d", "jsonl", 1, 1, 1, len(body), checksum(payload))
    appender.append(RAW_INPUT, import_id.encode(), pack_chunk(header, payload), partition).result(30)


def texts(cluster: Cluster, imports: list[str], last: int, since_ms: int = 0) -> list[str]:
    with closing(RecentChunks(cluster)) as recent:
        places, everywhere = recent.find(imports, last, since_ms)
        assert everywhere
        found = []
        for place in places:
            record = recent.read(place)
            assert record is not None
            header, payload = unpack_stamp(record)
            assert header is not None
            found.append(unpack_rows(header, payload).decode())
        return found


def test_the_last_chunks_by_version_wherever_they_lie(cluster: Cluster, appender: Appender) -> None:
    for version in (30, 10, 20, 50, 40):
        send(appender, "imp_a", version, version % 4)
        send(appender, "imp_other", version + 1, version % 4)
    appender.append(RAW_INPUT, b"imp_a", pack_close("imp_a"), 2).result(30)
    send(appender, "imp_b", 35, 3)
    assert texts(cluster, ["imp_a", "imp_b"], 3) == ["imp_b 35", "imp_a 40", "imp_a 50"]
    assert texts(cluster, ["imp_a"], 100) == [f"imp_a {version}" for version in (10, 20, 30, 40, 50)]
    assert texts(cluster, ["imp_nobody"], 5) == []
    assert texts(cluster, [], 5) == []


def test_what_lies_before_the_time_is_not_looked_at(cluster: Cluster, appender: Appender) -> None:
    send(appender, "imp_early", 1, 0)
    # The log counts in milliseconds.
    since = int(time.time() * 1000) + 5
    while time.time() * 1000 <= since:
        send(appender, "imp_filler", 1, 1)
    send(appender, "imp_early", 2, 0)
    assert texts(cluster, ["imp_early"], 5, since) == ["imp_early 2"]


def test_what_has_been_trimmed_is_gone(cluster: Cluster, appender: Appender) -> None:
    for version in (1, 2, 3):
        send(appender, "imp_trimmed", version, 0)
    send(appender, "imp_trimmed", 4, 1)
    with closing(RecentChunks(cluster)) as recent:
        places, _ = recent.find(["imp_trimmed"], 9, 0)
        assert [place.version for place in places] == [1, 2, 3, 4]
        Topics(cluster).trim({(RAW_INPUT, 0): end_offsets(cluster, RAW_INPUT)[0][1] - 1})
        assert [recent.read(place) is None for place in places] == [True, True, False, False]
    assert texts(cluster, ["imp_trimmed"], 9) == ["imp_trimmed 3", "imp_trimmed 4"]
    Topics(cluster).trim({(RAW_INPUT, 0): end_offsets(cluster, RAW_INPUT)[0][1]})
    assert texts(cluster, ["imp_trimmed"], 9) == ["imp_trimmed 4"]


def test_whoever_stops_waiting_leaves_the_others_their_confirmations(appender: Appender) -> None:
    left = [appender.append(RAW_INPUT, b"imp_left", pack_close("imp_left"), 0) for _ in range(20)]
    gone = [waiting.cancel() for waiting in left]
    assert any(gone), "all were confirmed before anybody could leave"
    assert appender.append(RAW_INPUT, b"imp_stays", pack_close("imp_stays"), 0).result(10).topic == RAW_INPUT
