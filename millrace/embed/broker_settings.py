"""The broker's server.properties as data: ports and folders in, settings out.

One node that is broker and controller, sized for a laptop: everything that defaults to a cluster is set to one."""

from collections.abc import Mapping
from pathlib import Path

from millrace.embed.ports import LOOPBACK

NODE_ID = 1
MESSAGE_BYTES = 16 * 1024 * 1024
# Bounds what waits in memory before it is appended; without it 500 requests of 16 MiB could.
QUEUED_REQUEST_BYTES = 4 * MESSAGE_BYTES


def broker_settings(port: int, controller_port: int, data: Path) -> dict[str, str]:
    """Every setting that differs from Kafka's default."""
    return {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@{LOOPBACK}:{controller_port}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        **_LIMITS,
        **_SINGLE_NODE,
        **_HOUSEKEEPING,
    }


def render_properties(settings: Mapping[str, str]) -> str:
    """In Java's properties format, where a backslash starts an escape."""
    return "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in settings.items())


_LIMITS = {
    "auto.create.topics.enable": "false",
    "message.max.bytes": str(MESSAGE_BYTES),
    "replica.fetch.max.bytes": str(MESSAGE_BYTES),
    "socket.request.max.bytes": str(QUEUED_REQUEST_BYTES),
    "queued.max.request.bytes": str(QUEUED_REQUEST_BYTES),
}

_SINGLE_NODE = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    # After kill -9 the controller waits out the old session before it lets the broker in again.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "num.replica.fetchers": "1",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "2",
}

_HOUSEKEEPING = {
    # Trimmed records leave the disk at this pace, not at Kafka's five minutes.
    "log.retention.check.interval.ms": "30000",
    "log.segment.delete.delay.ms": "5000",
    # Kafka's 128 MB would be a quarter of the heap.
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    "log.cleaner.io.buffer.size": str(256 * 1024),
}
