"""A real Apache Kafka broker, single node in KRaft mode, on loopback: a home folder in, `bootstrap_servers` out.

Formats its storage at the first start, keeps its ports and cluster id, and starts again after any kind of end. It answers
only clients that log in with an account, and lets each account do what its grants say."""

import base64
import json
import secrets
import shutil
import stat
import subprocess
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
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
from millrace.embed.ports import LOOPBACK, accepts, free_ports, is_free, listens
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
    home: Path,
    accounts: Accounts,
    port: int = 0,
    heap_megabytes: int = DEFAULT_HEAP_MEGABYTES,
    *,
    durable: bool = False,
) -> Broker:
    """End what an earlier run left, settle the ports, write the configuration and, the first time, the storage. `durable`:
    what it acknowledges survives a power cut.

    The storage of a version without accounts, or with other passwords than the files have now, gets these."""
    home = home.absolute()
    home.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    # A volume of a pod may belong to another user.
    with suppress(PermissionError):
        home.chmod(stat.S_IMODE(home.stat().st_mode) & ~stat.S_IRWXO)
    log = home / "kafka.log"
    end_left_over(log)
    preparing = _Preparing(home, accounts.passwords(), _settle_ports(home, port), _java(heap_megabytes), log, durable)
    if not preparing.data.is_dir():
        preparing.format()
    elif not preparing.is_known():
        preparing.set_up()
    argv, listening = preparing.command(), preparing.ports.clients
    password = preparing.passwords[ADMIN]
    ready = partial(is_open, listening, accounts, password)
    return Broker(home, listening, Child(Launch("kafka", argv, log, is_ready=ready)))


@dataclass(frozen=True, slots=True)
class _Preparing:
    home: Path
    passwords: Mapping[str, str]
    ports: Ports
    java: tuple[str, ...]
    log: Path
    durable: bool

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

    def command(self) -> tuple[str, ...]:
        return self._command(properties_of(self.ports, self.data, self.passwords[ADMIN], durable=self.durable))

    def _command(self, properties: str) -> tuple[str, ...]:
        return (*self.java, "kafka.Kafka", str(self._written("server.properties", properties)))

    def _written(self, name: str, text: str) -> Path:
        replace_file(self.home / name, text, mode=PRIVATE_FILE)
        return self.home / name

    def format(self) -> None:
        """Format a folder beside the final one and rename it: a crash leaves no half-formatted storage."""
        forming = self.home / "data.forming"
        shutil.rmtree(forming, ignore_errors=True)
        properties = self._written("forming.properties", properties_of(self.ports, forming, self.passwords[ADMIN]))
        words = ["format", "--config", str(properties), "--cluster-id", _cluster_id(self.home)]
        # In a file: everybody on this machine can see the arguments of a process.
        arguments = self._written("forming.arguments", "\n".join([*words, *scram_arguments(self.passwords)]))
        command = (*self.java, "kafka.tools.StorageTool", f"@{arguments}")
        try:
            with self.log.open("ab") as output:
                ran = subprocess.run(command, stdout=output, stderr=output, timeout=FORMAT_SECONDS, check=False)
        finally:
            arguments.unlink()
            properties.unlink()
        if ran.returncode != 0:
            raise ChildFailed("kafka", f"storage could not be formatted (code {ran.returncode})", self.log)
        self._note()
        forming.rename(self.data)

    def set_up(self) -> None:
        """Run the broker once, for the administrator alone and on ports that nobody knows, to store the passwords."""
        ports, password = Ports(*free_ports(2)), secrets.token_hex(32)
        command = self._command(properties_of(ports, self.data, password, is_setup=True))
        child = Child(Launch("kafka", command, self.log))
        child.start()
        try:
            deadline = time.monotonic() + SETUP_SECONDS
            # Not to somebody who took the port in the meantime: what follows is secret.
            while not (child.pid and listens(child.pid, ports.clients)):
                self._keep_waiting(child, deadline)
            admin = _administrator(ports.clients, password, "PLAIN")
            while not _lists(admin):
                self._keep_waiting(child, deadline)
            set_passwords(admin, self.passwords)
        except KafkaException as error:
            raise ChildFailed("kafka", f"did not take its accounts' passwords ({error})", self.log) from error
        finally:
            child.stop()
        self._note()

    def _keep_waiting(self, child: Child, deadline: float) -> None:
        if not child.running or time.monotonic() > deadline:
            raise ChildFailed("kafka", "did not take its accounts' passwords", self.log)
        time.sleep(LOOK_SECONDS)


def is_open(port: int, accounts: Accounts, admin_password: str) -> bool:
    """Whether the broker answers and has given each account its rights; it does so now if it had not."""
    if not accepts(port):
        return False
    admin = _administrator(port, admin_password, SCRAM)
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
