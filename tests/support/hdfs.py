"""A throw-away HDFS on loopback, Hadoop's own minicluster: `with hdfs() as cluster`. It takes about ten seconds to start."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import httpx2

from millrace.embed.java import find_java
from millrace.embed.ports import LOOPBACK, free_ports
from millrace.embed.process import Child, Launch
from tests.support.children import wait_ready
from tests.support.jar_sets import jar_files

START_SECONDS = 240
# Of Spark's own jars, what a cluster without Spark needs.
FROM_SPARK = (
    "hadoop-client-api",
    "hadoop-client-runtime",
    "slf4j-api",
    "jcl-over-slf4j",
    "commons-cli",
    "commons-logging",
)


@dataclass(frozen=True)
class HdfsCluster:
    rpc_port: int
    http_port: int

    @property
    def uri(self) -> str:
        """As Hadoop's clients name it."""
        return f"hdfs://{LOOPBACK}:{self.rpc_port}"


@contextmanager
def hdfs() -> Iterator[HdfsCluster]:
    """One name node and one data node, empty, alive as long as the context."""
    folder = Path(tempfile.mkdtemp(prefix="millrace-hdfs-"))
    cluster = HdfsCluster(*free_ports(2))
    child = Child(_launch(folder, cluster))
    child.start()
    try:
        wait_ready(child, START_SECONDS)
        yield cluster
    finally:
        child.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _launch(folder: Path, cluster: HdfsCluster) -> Launch:
    words = [
        str(find_java().executable), "-Xmx512m", "-cp", ":".join(map(str, [*jar_files("hdfs"), *_spark_jars()])),
        "org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1",
        "-nnport", str(cluster.rpc_port), "-httpport", str(cluster.http_port),
        "-D", f"hdfs.minidfs.basedir={folder / 'data'}", "-D", "dfs.permissions.enabled=false",
    ]  # fmt: skip
    return Launch("hdfs", tuple(words), folder / "server.log", cwd=folder, is_ready=lambda: _writes(cluster))


def _spark_jars() -> list[Path]:
    spec = find_spec("pyspark")
    assert spec is not None
    jars = Path(str(spec.origin)).parent / "jars"
    return [path for name in FROM_SPARK for path in jars.glob(f"{name}-*.jar")]


def _writes(cluster: HdfsCluster) -> bool:
    """Ready when it has left its safe mode and knows a data node to write to."""
    place = f"http://{LOOPBACK}:{cluster.http_port}/webhdfs/v1/ready"
    try:
        answer = httpx2.put(place, params={"op": "CREATE", "overwrite": "true", "noredirect": "true"}, timeout=5)
    except httpx2.HTTPError:
        return False
    return answer.status_code == 200 and "Location" in answer.json()
