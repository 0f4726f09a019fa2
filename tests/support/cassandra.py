"""A throw-away Cassandra on loopback, from its jars: `with cassandra() as port`."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from cassandra.cluster import Cluster, NoHostAvailable

from millrace.embed.java import find_java
from millrace.embed.ports import LOOPBACK, free_ports
from millrace.embed.process import Child, Launch
from tests.support.children import wait_ready
from tests.support.jar_sets import jar_files

START_SECONDS = 120
# What Cassandra asks of Java 17's modules, as its own start script does.
OPENED = (
    "java.base/java.io", "java.base/java.lang", "java.base/java.lang.reflect", "java.base/java.nio", "java.base/java.util",
    "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref", "java.base/jdk.internal.math", "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar", "java.base/sun.nio.ch", "java.rmi/sun.rmi.transport.tcp", "java.sql/java.sql",
    "jdk.management/com.sun.management.internal", "java.base/jdk.internal.loader", "java.base/jdk.internal.reflect",
)  # fmt: skip
EXPORTED = (
    "java.base/jdk.internal.misc", "java.base/jdk.internal.ref", "java.base/sun.nio.ch",
    "java.management/com.sun.jmx.remote.security",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp", "java.sql/java.sql", "jdk.unsupported/sun.misc", "java.base/java.lang.ref",
    "jdk.attach/sun.tools.attach",
)  # fmt: skip


@contextmanager
def cassandra() -> Iterator[int]:
    """The port of an empty server that lives as long as the context."""
    folder = Path(tempfile.mkdtemp(prefix="millrace-cassandra-"))
    native, storage = free_ports(2)
    child = Child(_launch(folder, native, storage))
    child.start()
    try:
        wait_ready(child, START_SECONDS)
        yield native
    finally:
        child.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _launch(folder: Path, native: int, storage: int) -> Launch:
    settings = {
        "cluster_name": "millrace-test",
        "num_tokens": 1,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "data_file_directories": [str(folder / "data")],
        **{f"{name}_directory": str(folder / name) for name in ("commitlog", "saved_caches", "hints", "cdc_raw")},
        "commitlog_sync": "periodic",
        "commitlog_sync_period": "1000ms",
        # A machine that does other things besides is slow, not broken.
        "write_request_timeout": "20s",
        "read_request_timeout": "20s",
        "request_timeout": "30s",
        "listen_address": LOOPBACK,
        "rpc_address": LOOPBACK,
        "native_transport_port": native,
        "storage_port": storage,
        "endpoint_snitch": "SimpleSnitch",
        "start_native_transport": True,
        "seed_provider": [
            {
                "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                "parameters": [{"seeds": f"{LOOPBACK}:{storage}"}],
            }
        ],
    }
    (folder / "cassandra.yaml").write_text(yaml.safe_dump(settings))
    (folder / "logback.xml").write_text("<configuration/>")
    opened = [word for module in OPENED for word in ("--add-opens", f"{module}=ALL-UNNAMED")]
    exported = [word for module in EXPORTED for word in ("--add-exports", f"{module}=ALL-UNNAMED")]
    words = [
        str(find_java().executable), "-Xms512m", "-Xmx512m", "-Djdk.attach.allowAttachSelf=true",
        "-Dcassandra.skip_wait_for_gossip_to_settle=0",
        "-Dcassandra.ring_delay_ms=1", f"-Dcassandra.config=file://{folder / 'cassandra.yaml'}",
        f"-Dcassandra.storagedir={folder}",
        f"-Dlogback.configurationFile={folder / 'logback.xml'}", "-Dcassandra-foreground=yes", *opened, *exported,
        "-cp", ":".join(map(str, jar_files("cassandra"))), "org.apache.cassandra.service.CassandraDaemon",
    ]  # fmt: skip
    return Launch("cassandra", tuple(words), folder / "server.log", cwd=folder, is_ready=lambda: _answers(native))


def _answers(port: int) -> bool:
    cluster = Cluster([LOOPBACK], port=port, connect_timeout=2)
    try:
        cluster.connect().shutdown()
        return True
    except (NoHostAvailable, OSError):
        return False
    finally:
        cluster.shutdown()
