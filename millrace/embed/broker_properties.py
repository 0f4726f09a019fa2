"""The broker's configuration: ports, folders and passwords in, the text of a properties file out.

Clients log in by SCRAM, which tells a stranger on the broker's port nothing. The broker reaches its own controller by a
password that is new at every start: SCRAM credentials are kept behind the controller and cannot guard it."""

import secrets
from dataclasses import dataclass
from pathlib import Path

from millrace.embed.accounts import ADMIN, SCRAM
from millrace.embed.ports import LOOPBACK

NODE_ID = 1
CONTROLLER = "controller"
MESSAGE_BYTES = 16 * 1024 * 1024
# Bounds what waits in memory before it is appended; without it 500 requests of 16 MiB could.
QUEUED_REQUEST_BYTES = 4 * MESSAGE_BYTES
_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True, slots=True)
class Ports:
    clients: int
    controller: int


def properties_of(
    ports: Ports, data: Path, admin_password: str, *, is_setup: bool = False, durable: bool = False
) -> str:
    """Every setting that differs from Kafka's default, in Java's format, where a backslash starts an escape.

    `durable`: a record is on the disk before it is acknowledged. There is no second broker that has it.
    `is_setup`: the administrator logs in without SCRAM, to store the credentials by which everybody logs in afterwards."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@{LOOPBACK}:{ports.controller}",
        "listeners": f"CLIENTS://{LOOPBACK}:{ports.clients},CONTROLLER://{LOOPBACK}:{ports.controller}",
        "advertised.listeners": f"CLIENTS://{LOOPBACK}:{ports.clients}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "CLIENTS",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        **_login("clients", "inter.broker", "PLAIN" if is_setup else SCRAM, ADMIN, admin_password),
        **_login("controller", "controller", "PLAIN", CONTROLLER, secrets.token_hex(32)),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:{CONTROLLER}",
        "log.dirs": str(data),
        **_LIMITS,
        **_SINGLE_NODE,
        **_HOUSEKEEPING,
        **(_FLUSHED if durable else {}),
    }
    return "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in settings.items())


def _login(listener: str, protocol: str, mechanism: str, account: str, password: str) -> dict[str, str]:
    """Of a listener: the one mechanism it accepts, and the account by which the broker itself logs in there."""
    says = f'username="{account}" password="{password}"'
    # PLAIN knows only the accounts that the configuration names; those of SCRAM are in the metadata log.
    module = f'{_PLAIN_LOGIN} required {says} user_{account}="{password}";'
    return {
        f"listener.name.{listener}.sasl.enabled.mechanisms": mechanism,
        f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": (
            f"{_SCRAM_LOGIN} required {says};" if mechanism == SCRAM else module
        ),
        f"sasl.mechanism.{protocol}.protocol": mechanism,
    }


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

_FLUSHED = {"log.flush.interval.messages": "1"}

_HOUSEKEEPING = {
    # Trimmed records leave the disk at this pace, not at Kafka's five minutes.
    "log.retention.check.interval.ms": "30000",
    "log.segment.delete.delay.ms": "5000",
    # Kafka's 128 MB would be a quarter of the heap.
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    "log.cleaner.io.buffer.size": str(256 * 1024),
}
