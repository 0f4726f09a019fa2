"""Targets of Delta tables elsewhere, for tests: a bucket of moto's, a folder in a mini HDFS."""

from dataclasses import replace
from typing import Any

import pytest

from millrace.model.sinks import REMOTE_DELTA_KIND, SinkTarget
from tests.support.hdfs import HdfsCluster
from tests.support.moto_server import ACCESS_KEY, REGION, S3, SECRET_KEY


def bucket_target(request: pytest.FixtureRequest) -> SinkTarget:
    server: S3 = request.getfixturevalue("s3")
    patch = request.getfixturevalue("monkeypatch")
    patch.setenv("MILLRACE_HOME", str(request.getfixturevalue("tmp_path")))
    patch.setenv("MILLRACE_SECRET_TEST_ACCESS", ACCESS_KEY)
    patch.setenv("MILLRACE_SECRET_TEST_SECRET", SECRET_KEY)
    return SinkTarget("lake", REMOTE_DELTA_KIND, True, bucket_settings(server))


def hdfs_target(request: pytest.FixtureRequest) -> SinkTarget:
    cluster: HdfsCluster = request.getfixturevalue("mini_hdfs")
    folder = request.getfixturevalue("tmp_path")
    request.getfixturevalue("monkeypatch").setenv("MILLRACE_HOME", str(folder))
    endpoint = f"http://127.0.0.1:{cluster.http_port}"
    settings = {"location": f"{cluster.uri}/lake/{folder.name}", "endpoint": endpoint, "user": "millrace"}
    return SinkTarget("lake", REMOTE_DELTA_KIND, True, settings)


def bucket_settings(server: S3) -> dict[str, Any]:
    keys = {"access_key": "env:MILLRACE_SECRET_TEST_ACCESS", "secret_key": "env:MILLRACE_SECRET_TEST_SECRET"}
    return {"location": f"s3://{server.bucket()}/lake", "endpoint": server.endpoint, "region": REGION, **keys}


def away(target: SinkTarget) -> SinkTarget:
    return replace(target, settings={**target.settings, "endpoint": "http://127.0.0.1:1"})
