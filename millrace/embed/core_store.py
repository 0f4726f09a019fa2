"""A real Apache Cassandra, one node on loopback: a home folder in, an address and a login out.

It keeps its ports and its password, and starts again after any kind of end. Only one role can log in; its password is in a
file that the platform's user alone reads."""

import json
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from millrace.atomic import replace_file
from millrace.embed.accounts import PRIVATE_FILE, PRIVATE_FOLDER
from millrace.embed.jars import jar_folder
from millrace.embed.java import find_java
from millrace.embed.ports import LOOPBACK, free_ports, is_free
from millrace.embed.process import Child, Launch, end_left_over

ROLE = "millrace"
DEFAULT_HEAP_MEGABYTES = 512
DIRECT_MEGABYTES = 256
READY_SECONDS = 120.0
# What Cassandra asks of Java's modules, as its own start script does.
_OPENED = (
    "java.base/java.io", "java.base/java.lang", "java.base/java.lang.reflect", "java.base/java.nio", "java.base/java.util",
    "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref", "java.base/jdk.internal.math", "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar", "java.base/sun.nio.ch", "java.rmi/sun.rmi.transport.tcp", "java.sql/java.sql",
    "jdk.management/com.sun.management.internal", "java.base/jdk.internal.loader", "java.base/jdk.internal.reflect",
)  # fmt: skip
_EXPORTED = (
    "java.base/jdk.internal.misc", "java.base/jdk.internal.ref", "java.base/sun.nio.ch",
    "java.management/com.sun.jmx.remote.security",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp", "java.sql/java.sql", "jdk.unsupported/sun.misc", "java.base/java.lang.ref",
    "jdk.attach/sun.tools.attach",
)  # fmt: skip
# One node that is not gossiping with anybody needs no pauses; C1 and the serial collector start fastest and leave the cores
# to the data plane. Without the delay the first role exists as soon as somebody can log in.
_QUICK = (
    "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError", "-Djdk.attach.allowAttachSelf=true",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0", "-Dcassandra.ring_delay_ms=1",
    "-Dcassandra.superuser_setup_delay_ms=0", "-Dcassandra-foreground=yes",
)  # fmt: skip
_LOGGING = (
    "<configuration><appender name='OUT' class='ch.qos.logback.core.ConsoleAppender'><encoder>"
    "<pattern>%d{ISO8601} %-5level %logger{0} %msg%n</pattern></encoder></appender>"
    "<root level='WARN'><appender-ref ref='OUT'/></root></configuration>\n"
)


@dataclass(frozen=True, slots=True)
class CoreStore:
    """Prepared: whoever wants it to run starts `child`. `set_up` is then to be called until it says that all is ready."""

    port: int
    password: str = field(repr=False)
    child: Child

    @property
    def host(self) -> str:
        return LOOPBACK


def prepare_core_store(home: Path, heap_megabytes: int = DEFAULT_HEAP_MEGABYTES) -> CoreStore:
    """Ends what an earlier run left, settles the ports and writes the configuration."""
    home = home.absolute()
    home.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    with suppress(PermissionError):
        home.chmod(stat.S_IMODE(home.stat().st_mode) & ~stat.S_IRWXO)
    log = home / "cassandra.log"
    end_left_over(log)
    native, storage = _settle_ports(home)
    secure = {
        "authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer",
        "role_manager": "CassandraRoleManager",
    }  # fmt: skip
    argv = cassandra_command(home, cassandra_settings(home, native, storage, secure), heap_megabytes)
    launch = Launch("cassandra", argv, log, cwd=home, stop_seconds=8.0)
    return CoreStore(native, _password(home), Child(launch))


def cassandra_settings(home: Path, native: int, storage: int, more: Mapping[str, Any]) -> dict[str, Any]:
    """Of one node that does little at a time, on a machine that does much else."""
    folders = {f"{name}_directory": str(home / name) for name in ("commitlog", "saved_caches", "hints", "cdc_raw")}
    seeds = {
        "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
        "parameters": [{"seeds": f"{LOOPBACK}:{storage}"}],
    }
    return {
        "cluster_name": "millrace",
        "num_tokens": 1,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "data_file_directories": [str(home / "data")],
        **folders,
        # A write is in the file before it is answered: it survives a killed process.
        "commitlog_sync": "periodic",
        "commitlog_sync_period": "1000ms",
        "commitlog_segment_size": "16MiB",
        "commitlog_total_space": "128MiB",
        "memtable_heap_space": "96MiB",
        "memtable_offheap_space": "96MiB",
        "file_cache_size": "32MiB",
        "networking_cache_size": "32MiB",
        "write_request_timeout": "20s",
        "read_request_timeout": "20s",
        "range_request_timeout": "60s",
        "request_timeout": "30s",
        "listen_address": LOOPBACK,
        "rpc_address": LOOPBACK,
        "native_transport_port": native,
        "storage_port": storage,
        "endpoint_snitch": "SimpleSnitch",
        "start_native_transport": True,
        "seed_provider": [seeds],
        **more,
    }


def cassandra_command(home: Path, settings: Mapping[str, Any], heap_megabytes: int) -> tuple[str, ...]:
    """Writes the configuration; the words that start the server."""
    configuration, logging = home / "cassandra.yaml", home / "logback.xml"
    replace_file(configuration, yaml.safe_dump(dict(settings)), mode=PRIVATE_FILE)
    replace_file(logging, _LOGGING, mode=PRIVATE_FILE)
    opened = [word for module in _OPENED for word in ("--add-opens", f"{module}=ALL-UNNAMED")]
    exported = [word for module in _EXPORTED for word in ("--add-exports", f"{module}=ALL-UNNAMED")]
    return (
        str(find_java().executable), f"-Xms{heap_megabytes // 2}m", f"-Xmx{heap_megabytes}m",
        f"-XX:MaxDirectMemorySize={DIRECT_MEGABYTES}m", *_QUICK, f"-Dcassandra.config=file://{configuration}",
        f"-Dcassandra.storagedir={home}", f"-Dlogback.configurationFile={logging}", *opened, *exported,
        "-cp", f"{jar_folder('cassandra')}/*", "org.apache.cassandra.service.CassandraDaemon",
    )  # fmt: skip


def _password(home: Path) -> str:
    """Made once: what the server knows cannot be read back."""
    file = home / "password"
    if not file.exists():
        replace_file(file, secrets.token_urlsafe(32), durable=True, mode=PRIVATE_FILE)
    return file.read_text()


def _settle_ports(home: Path) -> tuple[int, int]:
    """Those of the last run, unless others have taken them since."""
    file = home / "ports.json"
    remembered = json.loads(file.read_text()) if file.exists() else {}
    spare = iter(free_ports(2))
    native, storage = (_if_free(remembered.get(name)) or next(spare) for name in ("native", "storage"))
    replace_file(file, json.dumps({"native": native, "storage": storage}))
    return native, storage


def _if_free(port: int | None) -> int | None:
    return port if port and is_free(port) else None
