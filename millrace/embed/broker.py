"""A real Apache Kafka broker, single node in KRaft mode, on loopback: a home folder in, `bootstrap_servers` out.

Formats its storage at the first start, keeps its ports and cluster id, and starts again after any kind of end."""

import base64
import json
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from millrace.atomic import replace_file
from millrace.embed.errors import ChildFailed
from millrace.embed.jars import jar_folder
from millrace.embed.java import find_java
from millrace.embed.ports import LOOPBACK, accepts, free_ports, is_free
from millrace.embed.process import Child, Launch, end_left_over

NODE_ID = 1
MESSAGE_BYTES = 16 * 1024 * 1024
# Bounds what waits in memory before it is appended; without it 500 requests of 16 MiB could.
QUEUED_REQUEST_BYTES = 4 * MESSAGE_BYTES
DEFAULT_HEAP_MEGABYTES = 512
# Buffers outside of the heap.
DIRECT_MEGABYTES = 128
FORMAT_SECONDS = 60.0
METADATA_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Broker:
    """Kafka under one home folder, prepared: whoever wants it to run starts `child`."""

    home: Path
    port: int
    child: Child

    @property
    def bootstrap_servers(self) -> str:
        return f"{LOOPBACK}:{self.port}"


def prepare_broker(home: Path, port: int = 0, heap_megabytes: int = DEFAULT_HEAP_MEGABYTES) -> Broker:
    """End what an earlier run left, settle the ports, write the configuration and, the first time, the storage."""
    home = home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    properties, data, log = home / "server.properties", home / "data", home / "kafka.log"
    end_left_over(log)
    ports = _settle_ports(home, port)
    java = _java_command(heap_megabytes)
    properties.write_text(_properties(*ports, data))
    if not data.is_dir():
        _format(home, java, ports, log)
    argv = (*java, "kafka.Kafka", str(properties))
    return Broker(home, ports[0], Child(Launch("kafka", argv, log, is_ready=lambda: _answers(ports[0]))))


def _java_command(heap_megabytes: int) -> tuple[str, ...]:
    return (
        str(find_java().executable),
        f"-Xmx{heap_megabytes}m",
        f"-XX:MaxDirectMemorySize={DIRECT_MEGABYTES}m",
        *_TUNING,
        "-XX:+ExitOnOutOfMemoryError",
        *_LOGGING,
        *("-cp", f"{jar_folder('kafka')}/*"),
    )


def _answers(port: int) -> bool:
    if not accepts(port):
        return False
    try:
        client = AdminClient({"bootstrap.servers": f"{LOOPBACK}:{port}", "log_level": 0})
        return bool(client.list_topics(timeout=METADATA_SECONDS).brokers)
    except KafkaException:
        return False


def _format(home: Path, java: tuple[str, ...], ports: tuple[int, int], log: Path) -> None:
    """Format a folder beside the final one and rename it: a crash leaves no half-formatted storage."""
    forming, properties = home / "data.forming", home / "forming.properties"
    shutil.rmtree(forming, ignore_errors=True)
    properties.write_text(_properties(*ports, forming))
    words = ("format", "--config", str(properties), "--cluster-id", _cluster_id(home))
    command = (*java, "kafka.tools.StorageTool", *words)
    with log.open("ab") as output:
        ran = subprocess.run(command, stdout=output, stderr=output, timeout=FORMAT_SECONDS, check=False)
    if ran.returncode != 0:
        raise ChildFailed("kafka", f"storage could not be formatted (code {ran.returncode})", log)
    forming.rename(home / "data")
    properties.unlink()


def _cluster_id(home: Path) -> str:
    file = home / "cluster-id"
    if not file.exists():
        # The leading letter keeps the id from being read as a command line option.
        replace_file(file, "M" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:])
    return file.read_text()


def _settle_ports(home: Path, wanted: int) -> tuple[int, int]:
    """The ports of the last run, unless others have taken them since or another one is asked for."""
    file = home / "ports.json"
    remembered = json.loads(file.read_text()) if file.exists() else {}
    spare = iter(free_ports(2))
    broker = wanted or _if_free(remembered.get("broker")) or next(spare)
    controller = _if_free(remembered.get("controller")) or next(spare)
    replace_file(file, json.dumps({"broker": broker, "controller": controller}))
    return broker, controller


def _if_free(port: int | None) -> int | None:
    return port if port and is_free(port) else None


def _properties(port: int, controller_port: int, data: Path) -> str:
    """Every setting that differs from Kafka's default, in Java's format, where a backslash starts an escape."""
    settings = {
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
    return "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in settings.items())


# The broker mostly copies bytes, and the optimising compiler and G1 compete with the data plane for the cores: measured
# with 1 GB of 512 KiB records on 2 cores, these need about half the processor time of the defaults.
_TUNING = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
)

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
