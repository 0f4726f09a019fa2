"""The relay in front of somebody else's Kafka: brokers that a cluster advertises are judged as those that a tenant named."""

import random
import socket
import ssl
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millrace.model.errors import Invalid, Unavailable
from millrace.model.sinks import Fault, SinkTarget
from millrace.outbound import addresses, loopback
from millrace.outbound.addresses import Judged
from millrace.sink.kafka.settings import KafkaSinkSettings
from millrace.sink.kafka.sink import KafkaSink
from millrace.wire import external_kafka
from millrace.wire.external_frames import (
    API_VERSIONS,
    FIND_COORDINATOR,
    KNOWN,
    METADATA,
    NotKafka,
    capped,
    places_in,
    rewritten,
)
from millrace.wire.external_kafka import OutwardCluster
from millrace.wire.external_producer import OutBatch, OutwardProducer
from millrace.wire.external_relay import Relay
from tests.support.astray import ALLOWED, FORBIDDEN, NAME, PERMITTED, counting
from tests.support.sink_context import LOOPBACK, sink_context
from tests.support.small_kafka import advertises
from tests.support.tls import Authority, make_authority

BROKER = "broker.example"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_kafka, "REACH_SECONDS", 1.5)
    monkeypatch.setattr(loopback, "CONNECT_SECONDS", 0.5)


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    made = make_authority(tmp_path / "ca")
    (tmp_path / "ca.pem").write_text(made.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return made


def kafka_sink(host: str, port: int, *, tls: bool = False) -> KafkaSink:
    target = SinkTarget("feed", "kafka", True, {"hosts": [host], "port": port, "tls": tls})
    return KafkaSink(KafkaSinkSettings.of(target), replace(sink_context(), allowed=ALLOWED))


def reached(sink: KafkaSink) -> None:
    """The first thing that a sink does with its cluster. These clusters can do no more."""
    try:
        with sink._explained():
            sink._connected()
    finally:
        sink.close()


@pytest.mark.parametrize("advertised", [FORBIDDEN, NAME, "169.254.169.254"])
def test_a_forbidden_broker_that_a_cluster_advertises_gets_no_connection(advertised: str) -> None:
    with (
        counting(FORBIDDEN) as forbidden,
        counting(PERMITTED, advertises(advertised, forbidden.port)) as permitted,
    ):
        sink = kafka_sink(PERMITTED, permitted.port)
        with pytest.raises(Invalid, match="not a public address") as met:
            sink.check()
        assert advertised in str(met.value)
        assert sink.classify(met.value) is Fault.SINK
        # The client tries to connect to every broker of its cluster, also later.
        with pytest.raises(Invalid):
            sink.check()
        sink.close()
        assert (permitted.connections > 0, forbidden.connections) == (True, 0)


def test_a_coordinator_that_is_forbidden_gets_no_connection() -> None:
    body = struct.pack(">ihh", 0, 0, -1) + struct.pack(">ih9si", 1, 9, FORBIDDEN.encode(), 9092)
    assert places_in(FIND_COORDINATOR, 2, body) == [(FORBIDDEN, 9092)]
    moved = rewritten(FIND_COORDINATOR, 2, body, lambda _: ("10.0.0.10", 7))
    assert places_in(FIND_COORDINATOR, 2, moved) == [("10.0.0.10", 7)]
    wrong = struct.pack(">ihh", 0, 15, -1) + struct.pack(">ih9si", 1, 9, FORBIDDEN.encode(), 9092)
    assert FORBIDDEN.encode() not in rewritten(FIND_COORDINATOR, 2, wrong, lambda place: place)


def test_with_tls_the_certificate_must_be_the_broker_s_and_the_address_the_judged_one(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(BROKER))
    monkeypatch.setattr(addresses, "resolve", lambda _: [PERMITTED])
    port = 0

    def answering(peer: socket.socket) -> None:
        advertises(BROKER, port, context)(peer)

    with counting(PERMITTED, answering) as server:
        port = server.port
        reached(kafka_sink(BROKER, port, tls=True))
        assert server.connections > 0
        with pytest.raises(Unavailable, match=r"other\.example.*(?i:certificate)"):
            reached(kafka_sink("other.example", port, tls=True))
    with counting(PERMITTED, advertises(BROKER, 1)) as plain, pytest.raises(Unavailable, match="takes no connection"):
        reached(kafka_sink(BROKER, plain.port, tls=True))


def test_a_server_that_does_not_speak_kafka_is_named() -> None:
    def answering(peer: socket.socket) -> None:
        peer.recv(65536)
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with (
        counting(PERMITTED, answering) as server,
        pytest.raises(Unavailable, match=f"{PERMITTED}:{server.port} does not answer as Kafka does"),
    ):
        reached(kafka_sink(PERMITTED, server.port))


def test_only_known_requests_are_offered_in_versions_that_can_be_read() -> None:
    many = [(key, 0, 40) for key in range(120)] + [(METADATA, 9, 12)]
    compact = struct.pack(">hB", 0, len(many) + 1) + b"".join(struct.pack(">hhh", *one) + b"\0" for one in many)
    plain = struct.pack(">hi", 0, len(many)) + b"".join(struct.pack(">hhh", *one) for one in many)
    tail = b"\0\0\0\7\0"
    for version, body, width in ((3, compact, 7), (2, plain, 6)):
        found = capped(version, body + tail)
        assert found.endswith(tail)
        listed = found[3 if width == 7 else 6 : -len(tail)]
        entries = [struct.unpack(">hhh", listed[at : at + 6]) for at in range(0, len(listed), width)]
        assert {key: most for key, _, most in entries} == KNOWN
        assert len(entries) == len(KNOWN)


def test_bytes_that_are_no_answer_are_refused_in_words() -> None:
    chance = random.Random(7)
    for _ in range(3000):
        body = chance.randbytes(chance.randrange(60))
        for api, version in ((METADATA, 8), (METADATA, 0), (FIND_COORDINATOR, 0), (FIND_COORDINATOR, 2)):
            try:
                rewritten(api, version, body, lambda _: ("127.0.0.1", 1))
            except NotKafka:
                continue
        try:
            capped(chance.choice((0, 3)), body)
        except NotKafka:
            continue
    assert API_VERSIONS in KNOWN


def test_rows_pass_through_the_relay_to_every_broker_of_a_cluster() -> None:
    """librdkafka's own cluster of three brokers; the client never learns where they are."""
    hidden = Producer({"test.mock.num.brokers": 3, "log_level": 0})
    brokers = {(broker.host, broker.port) for broker in hidden.list_topics(timeout=5).brokers.values()}
    host, port = sorted(brokers)[0]
    relay = Relay(Judged(LOOPBACK))
    cluster = OutwardCluster({"bootstrap.servers": relay.address(host, port)})
    try:
        cluster.reach()
        relay.check()
        seen = {(broker.host, broker.port) for broker in cluster._admin.list_topics(timeout=5).brokers.values()}
        assert (len(seen), seen & brokers) == (3, set())
        producer = OutwardProducer(cluster, "notes", 8 << 20)
        values = [b"%d" % number * 1000 for number in range(2000)]
        producer.send([OutBatch("notes", [b"%d" % number for number in range(2000)], values)])
        producer.close()
        assert sorted(record.value or b"" for record in cluster.read("notes")) == sorted(values)
        assert set(relay._listeners) == brokers
    finally:
        del cluster
        relay.close()
