"""Named sets of jars, resolved once per machine and kept: a set's name in, the folder that holds its jars out.

`python -m millrace.embed.jars SET…` prints one folder a line. A folder appears complete, with the bytes that jars.sha256
pins, or not at all. Sets are resolved at the same time: most of it is waiting for a repository."""

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from millrace.embed.errors import EmbedError, JarsUnresolved
from millrace.embed.ivy import Artifact, retrieve
from millrace.embed.java import find_java

KAFKA_VERSION = "4.3.1"
SPARK_VERSION = "4.2.0"
CASSANDRA_VERSION = "5.0.9"

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
    # Only for the core store (MILLRACE_MYSIMBDP), and for tests of the sink.
    "cassandra": (Artifact("org.apache.cassandra", "cassandra-all", CASSANDRA_VERSION, transitive=True),),
}


PINS = Path(__file__).with_suffix(".sha256")


def read_pins(file: Path = PINS) -> dict[str, dict[str, str]]:
    """By set and jar its SHA-256, from lines as sha256sum writes them: DIGEST  SET/JAR."""
    pins: dict[str, dict[str, str]] = {}
    for line in file.read_text().splitlines():
        digest, place = line.split()
        name, _, jar = place.partition("/")
        pins.setdefault(name, {})[jar] = digest
    return pins


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """MILLRACE_CACHE, else the user's cache folder."""
    if environ.get("MILLRACE_CACHE"):
        return Path(environ["MILLRACE_CACHE"])
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path(environ.get("HOME", "~")).expanduser() / ".cache") / "millrace"


def jar_folder(name: str, sets: Mapping[str, tuple[Artifact, ...]] = JAR_SETS, pins: Path = PINS) -> Path:
    """The folder that holds exactly the jars of one set, resolved first if need be."""
    if name not in sets:
        raise JarsUnresolved(f"no jar set {name!r}.", remedy=f"There are {', '.join(sorted(sets))}.")
    pinned = read_pins(pins).get(name, {})
    known = [*map(str, sets[name]), *(f"{jar} {digest}" for jar, digest in sorted(pinned.items()))]
    fingerprint = hashlib.sha256("\n".join(known).encode()).hexdigest()[:12]
    cache = cache_folder()
    folder = cache / "jars" / f"{name}-{fingerprint}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Two Ivys cannot share a cache.
    ivy_cache = cache / "ivy" / name
    ivy_cache.mkdir(parents=True, exist_ok=True)
    with (ivy_cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _resolve(sets[name], folder, ivy_cache, pinned)
    return folder


def jar_folders(
    names: Sequence[str], sets: Mapping[str, tuple[Artifact, ...]] = JAR_SETS, pins: Path = PINS
) -> list[Path]:
    """The folders of several sets. If some cannot be had, the others are kept and the first failure is raised."""
    with ThreadPoolExecutor(max_workers=max(1, len(names)), thread_name_prefix="jars") as threads:
        return list(threads.map(lambda name: jar_folder(name, sets, pins), names))


def jar_files(name: str) -> list[Path]:
    """The jars of one set, in a stable order."""
    return sorted(jar_folder(name).glob("*.jar"))


def _resolve(artifacts: tuple[Artifact, ...], folder: Path, ivy_cache: Path, pinned: Mapping[str, str]) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        retrieve(artifacts, unfinished, ivy_cache, find_java())
        missing = [a for a in artifacts if not (unfinished / f"{a.name}-{a.version}.jar").is_file()]
        if missing:
            names = ", ".join(map(str, missing))
            raise JarsUnresolved(f"Ivy reported success without {names}.", remedy=f"Remove {ivy_cache} and try again.")
        _refuse_others(unfinished, pinned, ivy_cache)
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _refuse_others(folder: Path, pinned: Mapping[str, str], ivy_cache: Path) -> None:
    """A jar runs with all rights of the platform: it must be, byte for byte, one that somebody has looked at."""
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}
    wrong = sorted(name for name in found.keys() | pinned.keys() if found.get(name) != pinned.get(name))
    if wrong:
        raise JarsUnresolved(
            f"{', '.join(wrong[:5])}: not the bytes that {PINS.name} pins.",
            remedy=f"Remove {ivy_cache} and try again; if it stays so, do not trust the repository that they come from.",
        )


if __name__ == "__main__":
    try:
        for found in jar_folders(sys.argv[1:] or sorted(JAR_SETS)):
            print(found)
    except EmbedError as failed:
        sys.exit(str(failed))
