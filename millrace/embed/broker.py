"""A real Apache Kafka broker, single node in KRaft mode, on loopback: a home folder in, `bootstrap_servers` out.

Formats its storage at the first start, keeps its ports and cluster id, and starts again after any kind of end.
"""

import base64
import json
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from millrace.atomic import replace_file
from millrace.embed.broker_settings import broker_settings, render_properties
from millrace.embed.errors import ChildFailed
from millrace.embed.jars import jar_folder
from millrace.embed.java import Java, find_java
from millrace.embed.ports import LOOPBACK, accepts, free_ports, is_free
from millrace.embed.process import Child, Launch

FORMAT_SECONDS = 60.0
METADATA_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class BrokerMemory:
    """The stated bound of the broker process: heap, plus buffers outside of it."""

    heap_megabytes: int = 512
    direct_megabytes: int = 128


DEFAULT_MEMORY = BrokerMemory()


class Broker:
    """Kafka under one home folder: `prepare` it and let a supervisor run `child`, or start and stop it by hand."""

    def __init__(
        self,
        home: Path,
        port: int = 0,
        *,
        memory: BrokerMemory = DEFAULT_MEMORY,
        jars: Path | None = None,
        java: Java | None = None,
    ) -> None:
        self.home = home.absolute()
        self._wanted_port = port
        self._memory = memory
        self._jars = jars or jar_folder("kafka")
        self._java = java or find_java()
        self._ports: tuple[int, int] | None = None
        self.child = Child(self._launch())

    @property
    def port(self) -> int:
        return self._settled_ports()[0]

    @property
    def bootstrap_servers(self) -> str:
        """Known once prepared or started."""
        return f"{LOOPBACK}:{self.port}"

    def prepare(self) -> None:
        """End what an earlier run left, settle the ports, write the configuration and, the first time, the storage."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.child.end_left_over()
        self._ports = self._settle_ports()
        self._write_properties(self._properties, self._data)
        if not self._data.is_dir():
            self._format()

    def start(self) -> None:
        """Prepare and launch; returns before the broker answers."""
        if not self.child.running:
            self.prepare()
            self.child.start()

    def wait_ready(self, deadline_seconds: float | None = None) -> None:
        """Return when a metadata request is answered; raise ChildFailed when it is not in time."""
        self.child.wait_ready(deadline_seconds)

    def stop(self) -> None:
        """Shut down in order: logs flushed, the next start needs no recovery."""
        self.child.stop()

    def kill(self) -> None:
        """End it without warning, as a power cut would."""
        self.child.kill()

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def _data(self) -> Path:
        return self.home / "data"

    @property
    def _properties(self) -> Path:
        return self.home / "server.properties"

    def _launch(self) -> Launch:
        argv = (*self._java_command("kafka.Kafka"), str(self._properties))
        return Launch("kafka", argv, self.home / "kafka.log", is_ready=self._answers)

    def _java_command(self, main_class: str) -> tuple[str, ...]:
        return (
            str(self._java.executable),
            f"-Xmx{self._memory.heap_megabytes}m",
            f"-XX:MaxDirectMemorySize={self._memory.direct_megabytes}m",
            *_TUNING,
            "-XX:+ExitOnOutOfMemoryError",
            *_LOGGING,
            *("-cp", f"{self._jars}/*", main_class),
        )

    def _answers(self) -> bool:
        if not accepts(self.port):
            return False
        try:
            client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
            return bool(client.list_topics(timeout=METADATA_SECONDS).brokers)
        except KafkaException:
            return False

    def _format(self) -> None:
        """Format a folder beside the final one and rename it: a crash leaves no half-formatted storage."""
        forming = self.home / "data.forming"
        shutil.rmtree(forming, ignore_errors=True)
        properties = self.home / "forming.properties"
        self._write_properties(properties, forming)
        command = (
            *self._java_command("kafka.tools.StorageTool"),
            *("format", "--config", str(properties), "--cluster-id", self._cluster_id()),
        )
        log = self.child.launch.log
        with log.open("ab") as output:
            ran = subprocess.run(command, stdout=output, stderr=output, timeout=FORMAT_SECONDS, check=False)
        if ran.returncode != 0:
            raise ChildFailed("kafka", f"storage could not be formatted (code {ran.returncode})", log)
        forming.rename(self._data)
        properties.unlink()

    def _write_properties(self, file: Path, data: Path) -> None:
        file.write_text(render_properties(broker_settings(*self._settled_ports(), data)))

    def _cluster_id(self) -> str:
        file = self.home / "cluster-id"
        if not file.exists():
            # The leading letter keeps the id from being read as a command line option.
            replace_file(file, "M" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:])
        return file.read_text()

    def _settled_ports(self) -> tuple[int, int]:
        if self._ports is None:
            raise RuntimeError(f"the broker in {self.home} has no port yet: call prepare() or start() first")
        return self._ports

    def _settle_ports(self) -> tuple[int, int]:
        """The ports of the last run, unless others have taken them since or another one is asked for."""
        file = self.home / "ports.json"
        remembered = json.loads(file.read_text()) if file.exists() else {}
        spare = iter(free_ports(2))
        broker = self._wanted_port or _if_free(remembered.get("broker")) or next(spare)
        controller = _if_free(remembered.get("controller")) or next(spare)
        replace_file(file, json.dumps({"broker": broker, "controller": controller}))
        return broker, controller


def _if_free(port: int | None) -> int | None:
    return port if port and is_free(port) else None


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
