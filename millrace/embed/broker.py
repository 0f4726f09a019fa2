"""A real Apache Kafka broker, single node in KRaft mode, on loopback: a home folder in, `bootstrap_servers` out.

Formats its storage at the first start, keeps its ports and cluster id, and starts again after any kind of end. It answers
only clients that log in with an account, and lets each account do what its grants say."""

import base64
import json
import shutil
import stat
import subprocess
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from millrace.atomic import replace_file
from millrace.embed.accounts import (
    ADMIN,
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    SCRAM,
    Accounts,
    fingerprint,
    login,
    scram_arguments,
    set_acls,
    set_passwords,
)
from millrace.embed.broker_properties import Ports, properties_of
from millrace.embed.errors import ChildFailed
from millrace.embed.jars import jar_folder
from millrace.embed.java import find_java
from millrace.embed.ports import LOOPBACK, accepts, free_ports, is_free
from millrace.embed.process import Child, Launch, end_left_over

DEFAULT_HEAP_MEGABYTES = 512
# Buffers outside of the heap.
DIRECT_MEGABYTES = 128
FORMAT_SECONDS = 60.0
SETUP_SECONDS = 60.0
LOOK_SECONDS = 0.1
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


def prepare_broker(
    home: Path, accounts: Accounts, port: int = 0, heap_megabytes: int = DEFAULT_HEAP_MEGABYTES
) -> Broker:
    """End what an earlier run left, settle the ports, write the configuration and, the first time, the storage.

    The storage of a version without accounts, or with other passwords than the files have now, gets these."""
    home = home.absolute()
    home.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    # A volume of a pod may belong to another user.
    with suppress(PermissionError):
        home.chmod(stat.S_IMODE(home.stat().st_mode) & ~stat.S_IRWXO)
    log = home / "kafka.log"
    end_left_over(log)
    preparing = _Preparing(home, accounts.passwords(), _settle_ports(home, port), _java(heap_megabytes), log)
    if not preparing.data.is_dir():
        preparing.format()
    elif not preparing.is_known():
        preparing.set_up()
    argv, listening = preparing.command(preparing.data), preparing.ports.clients
    return Broker(home, listening, Child(Launch("kafka", argv, log, is_ready=lambda: is_open(listening, accounts))))


@dataclass(frozen=True, slots=True)
class _Preparing:
    home: Path
    passwords: Mapping[str, str]
    ports: Ports
    java: tuple[str, ...]
    log: Path

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def _noted(self) -> Path:
        """Holds the fingerprint of the passwords that the storage knows."""
        return self.home / "accounts"

    def is_known(self) -> bool:
        return self._noted.exists() and self._noted.read_text() == fingerprint(self.passwords)

    def _note(self) -> None:
        replace_file(self._noted, fingerprint(self.passwords), durable=True, mode=PRIVATE_FILE)

    def command(self, data: Path, *, is_setup: bool = False, ports: Ports | None = None) -> tuple[str, ...]:
        properties = self._properties(data, "server", is_setup=is_setup, ports=ports)
        return (*self.java, "kafka.Kafka", str(properties))

    def _properties(self, data: Path, name: str, *, is_setup: bool = False, ports: Ports | None = None) -> Path:
        path = self.home / f"{name}.properties"
        text = properties_of(ports or self.ports, data, self.passwords[ADMIN], is_setup=is_setup)
        replace_file(path, text, mode=PRIVATE_FILE)
        return path

    def format(self) -> None:
        """Format a folder beside the final one and rename it: a crash leaves no half-formatted storage."""
        forming, arguments = self.home / "data.forming", self.home / "forming.arguments"
        shutil.rmtree(forming, ignore_errors=True)
        properties = self._properties(forming, "forming")
        words = ["format", "--config", str(properties), "--cluster-id", _cluster_id(self.home)]
        # In a file: everybody on this machine can see the arguments of a process.
        replace_file(arguments, "\n".join([*words, *scram_arguments(self.passwords)]), mode=PRIVATE_FILE)
        command = (*self.java, "kafka.tools.StorageTool", f"@{arguments}")
        with self.log.open("ab") as output:
            ran = subprocess.run(command, stdout=output, stderr=output, timeout=FORMAT_SECONDS, check=False)
        arguments.unlink()
        if ran.returncode != 0:
            raise ChildFailed("kafka", f"storage could not be formatted (code {ran.returncode})", self.log)
        properties.unlink()
        self._note()
        forming.rename(self.data)

    def set_up(self) -> None:
        """Run the broker once, for the administrator alone and on ports that nobody knows, to store the passwords."""
        ports = Ports(*free_ports(2))
        child = Child(Launch("kafka", self.command(self.data, is_setup=True, ports=ports), self.log))
        child.start()
        try:
            admin = _administrator(ports.clients, self.passwords[ADMIN], "PLAIN")
            deadline = time.monotonic() + SETUP_SECONDS
            while not _lists(admin):
                if not child.running or time.monotonic() > deadline:
                    raise ChildFailed("kafka", "did not take its accounts' passwords", self.log)
                time.sleep(LOOK_SECONDS)
            set_passwords(admin, self.passwords)
        except KafkaException as error:
            raise ChildFailed("kafka", f"did not take its accounts' passwords ({error})", self.log) from error
        finally:
            child.stop()
        self._note()


def is_open(port: int, accounts: Accounts) -> bool:
    """Whether the broker answers and has given each account its rights; it does so now if it had not."""
    if not accepts(port):
        return False
    admin = _administrator(port, accounts.passwords()[ADMIN], SCRAM)
    try:
        if _lists(admin):
            set_acls(admin, accounts)
            return True
    except KafkaException:
        pass
    return False


def _administrator(port: int, password: str, mechanism: str) -> AdminClient:
    address, who = f"{LOOPBACK}:{port}", login(ADMIN, password)
    return AdminClient({"bootstrap.servers": address, "log_level": 0, **who, "sasl.mechanism": mechanism})


def _lists(admin: AdminClient) -> bool:
    try:
        return bool(admin.list_topics(timeout=METADATA_SECONDS).brokers)
    except KafkaException:
        return False


def _java(heap_megabytes: int) -> tuple[str, ...]:
    return (
        str(find_java().executable),
        f"-Xmx{heap_megabytes}m",
        f"-XX:MaxDirectMemorySize={DIRECT_MEGABYTES}m",
        *_TUNING,
        "-XX:+ExitOnOutOfMemoryError",
        *_LOGGING,
        *("-cp", f"{jar_folder('kafka')}/*"),
    )


def _cluster_id(home: Path) -> str:
    file = home / "cluster-id"
    if not file.exists():
        # The leading letter keeps the id from being read as a command line option.
        replace_file(file, "M" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:])
    return file.read_text()


def _settle_ports(home: Path, wanted: int) -> Ports:
    """The ports of the last run, unless others have taken them since or another one is asked for."""
    file = home / "ports.json"
    remembered = json.loads(file.read_text()) if file.exists() else {}
    spare = iter(free_ports(2))
    broker = wanted or _if_free(remembered.get("broker")) or next(spare)
    controller = _if_free(remembered.get("controller")) or next(spare)
    replace_file(file, json.dumps({"broker": broker, "controller": controller}))
    return Ports(broker, controller)


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
