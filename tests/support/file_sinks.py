"""Targets of the file sink for tests: a folder, a bucket of moto's, a folder in a mini HDFS."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millrace.model.sinks import SinkTarget
from tests.support.moto_server import ACCESS_KEY, REGION, SECRET_KEY


def folder_target(request: pytest.FixtureRequest, **more: Any) -> SinkTarget:
    patch = request.getfixturevalue("monkeypatch")
    root: Path = request.getfixturevalue("tmp_path")
    patch.setenv("MILLRACE_FILES_ROOT", str(root))
    return _target({"path": f"{root.as_uri()}/out", **more})


def bucket_target(request: pytest.FixtureRequest, **more: Any) -> SinkTarget:
    patch = request.getfixturevalue("monkeypatch")
    server = request.getfixturevalue("s3")
    patch.setenv("MILLRACE_SECRET_TEST_ACCESS", ACCESS_KEY)
    patch.setenv("MILLRACE_SECRET_TEST_SECRET", SECRET_KEY)
    keys = {"access_key": "env:MILLRACE_SECRET_TEST_ACCESS", "secret_key": "env:MILLRACE_SECRET_TEST_SECRET"}
    place = {"path": f"s3://{server.bucket()}/exports/daily", "endpoint": server.endpoint, "region": REGION}
    return _target({**place, **keys, **more})


def hdfs_target(request: pytest.FixtureRequest, **more: Any) -> SinkTarget:
    cluster = request.getfixturevalue("mini_hdfs")
    name = request.getfixturevalue("tmp_path").name
    return _target({"path": f"webhdfs://127.0.0.1:{cluster.http_port}/exports/{name}", "user": "millrace", **more})


def _target(settings: dict[str, Any]) -> SinkTarget:
    return SinkTarget("export", "files", True, {"mode": "changelog", **settings})


def away(target: SinkTarget) -> SinkTarget:
    """The same target where nothing answers, or where no folder can be."""
    path = str(target.settings["path"])
    if "endpoint" in target.settings:
        return replace(target, settings={**target.settings, "endpoint": "http://127.0.0.1:1"})
    if path.startswith("webhdfs:"):
        return replace(target, settings={**target.settings, "path": "webhdfs://127.0.0.1:1/exports"})
    Path(path.removeprefix("file://")).write_text("not a folder")
    return target
