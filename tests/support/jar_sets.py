"""Jars of servers and readers that only tests use. `python -m tests.support.jar_sets SET…` brings them onto this machine."""

import sys
from pathlib import Path

from millrace.embed.ivy import Artifact
from millrace.embed.jars import JAR_SETS, jar_folder, jar_folders

PINS = Path(__file__).with_name("jars.sha256")
DELTA_VERSION = "4.4.0"
DELTA33_VERSION = "3.3.2"

TEST_SETS = {
    # What else it needs is among Spark's own jars.
    "hdfs": (
        Artifact("org.apache.hadoop", "hadoop-client-minicluster", "3.5.0"),
        Artifact("org.mockito", "mockito-core", "4.11.0", transitive=True),
    ),
    # A driver that an operator might register.
    "mariadb": (Artifact("org.mariadb.jdbc", "mariadb-java-client", "3.5.6"),),
    # For Spark 3.5.
    "delta33": (
        Artifact("io.delta", "delta-spark_2.12", DELTA33_VERSION),
        Artifact("io.delta", "delta-storage", DELTA33_VERSION),
    ),
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


def jar_files(name: str) -> list[Path]:
    folder = jar_folder(name) if name in JAR_SETS else jar_folder(name, TEST_SETS, PINS)
    return sorted(folder.glob("*.jar"))


if __name__ == "__main__":
    for found in jar_folders(sys.argv[1:], TEST_SETS, PINS):
        print(found)
