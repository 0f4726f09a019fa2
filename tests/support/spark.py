"""A Spark session inside the test process, ended with its JVM."""

import subprocess

from pyspark import SparkContext
from pyspark.sql import SparkSession

EXIT_SECONDS = 30


def end_session(session: SparkSession) -> None:
    """Stopping a session leaves its JVM running until the Python process ends."""
    gateway = SparkContext._gateway
    session.stop()
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is None:
        return
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    assert process.stdin is not None
    # The JVM ends when its standard input does.
    process.stdin.close()
    try:
        process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(EXIT_SECONDS)
