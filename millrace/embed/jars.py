"""Named sets of jars, resolved once per machine and kept: a set's name in, the folder that holds its jars out.

`python -m millrace.embed.jars SET…` prints one folder a line. A folder appears complete or not at all."""

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from millrace.embed.errors import EmbedError, JarsUnresolved
from millrace.embed.ivy import Artifact, retrieve
from millrace.embed.java import find_java

KAFKA_VERSION = "4.3.1"
SPARK_VERSION = "4.2.0"
DELTA_VERSION = "4.4.0"
CASSANDRA_VERSION = "5.0.9"
MARIADB_DRIVER_VERSION = "3.5.6"
HADOOP_VERSION = "3.5.0"

JAR_SETS: Mapping[str, tuple[Artifact, ...]] = {
    "kafka": (
        Artifact("org.apache.kafka", "kafka_2.13", KAFKA_VERSION, transitive=True),
        Artifact("org.slf4j", "slf4j-simple", "1.7.36"),
    ),
    # What Spark needs for Kafka, without what it ships itself: a second copy on the class path would shadow it.
    "spark": (
        Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION),
        # Some mirrors lack 4.2.0; 4.0.0 has the same interface.
        Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        Artifact("org.apache.kafka", "kafka-clients", "3.9.2"),
        Artifact("org.apache.commons", "commons-pool2", "2.13.1"),
    ),
    # A server for tests.
    "cassandra": (Artifact("org.apache.cassandra", "cassandra-all", CASSANDRA_VERSION, transitive=True),),
    # A cluster for tests; what else it needs is among Spark's own jars.
    "hdfs": (
        Artifact("org.apache.hadoop", "hadoop-client-minicluster", HADOOP_VERSION),
        Artifact("org.mockito", "mockito-core", "4.11.0", transitive=True),
    ),
    # A driver for tests of what operators register.
    "mariadb": (Artifact("org.mariadb.jdbc", "mariadb-java-client", MARIADB_DRIVER_VERSION),),
    "delta": (
        Artifact("io.delta", "delta-spark_2.13", DELTA_VERSION),
        Artifact("io.delta", "delta-storage", DELTA_VERSION),
        Artifact("io.delta", "delta-kernel-api", DELTA_VERSION),
        Artifact("io.delta", "delta-kernel-defaults", DELTA_VERSION),
        Artifact("io.delta", "delta-kernel-unitycatalog", DELTA_VERSION),
        Artifact("io.unitycatalog", "unitycatalog-client", "0.6.0"),
        Artifact("io.unitycatalog", "unitycatalog-hadoop", "0.6.0"),
    ),
}


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """MILLRACE_CACHE, else the user's cache folder."""
    if environ.get("MILLRACE_CACHE"):
        return Path(environ["MILLRACE_CACHE"])
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path(environ.get("HOME", "~")).expanduser() / ".cache") / "millrace"


def jar_folder(name: str, cache: Path | None = None) -> Path:
    """The folder that holds exactly the jars of one set, resolved first if need be."""
    if name not in JAR_SETS:
        raise JarsUnresolved(f"no jar set {name!r}.", remedy=f"There are {', '.join(sorted(JAR_SETS))}.")
    cache = cache or cache_folder()
    folder = cache / "jars" / f"{name}-{_fingerprint(JAR_SETS[name])}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _resolve(JAR_SETS[name], folder, cache / "ivy")
    return folder


def jar_files(name: str, cache: Path | None = None) -> list[Path]:
    """The jars of one set, in a stable order."""
    return sorted(jar_folder(name, cache).glob("*.jar"))


def _resolve(artifacts: tuple[Artifact, ...], folder: Path, ivy_cache: Path) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        retrieve(artifacts, unfinished, ivy_cache, find_java())
        missing = [a for a in artifacts if not (unfinished / f"{a.name}-{a.version}.jar").is_file()]
        if missing:
            names = ", ".join(map(str, missing))
            raise JarsUnresolved(f"Ivy reported success without {names}.", remedy=f"Remove {ivy_cache} and try again.")
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _fingerprint(artifacts: tuple[Artifact, ...]) -> str:
    return hashlib.sha256("\n".join(map(str, artifacts)).encode()).hexdigest()[:12]


if __name__ == "__main__":
    try:
        for wanted in sys.argv[1:] or sorted(JAR_SETS):
            print(jar_folder(wanted))
    except EmbedError as failed:
        sys.exit(str(failed))
