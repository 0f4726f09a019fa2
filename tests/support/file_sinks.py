"""Targets of the file sink for tests: a folder, buckets of emulators, a folder in a mini HDFS."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from millrace.model.sinks import SinkTarget
from tests.support.google_emulators import BUCKET
from tests.support.moto_server import ACCESS_KEY, REGION, SECRET_KEY


def folder_target(request: pytest.FixtureRequest, **more: Any) -> SinkTarget:
    patch = request.getfixturevalue("monkeypatch")
    root: Path = request.getfixturevalue("tmp_path")
    patch.setenv("MILLRACE_FILES_ROOT", str(root / "out"))
    return _target({"path": f"{root.as_uri()}/out/exports", **more})


def bucket_target(request: pytest.FixtureRequest, **more: Any) -> SinkTarget:
    patch = request.getfixturevalue("monkeypatch")
    server = request.getfixturevalue("s3")
    patch.setenv("MILLRACE_SECRET_TEST_ACCESS", ACCESS_KEY)
    patch.setenv("MILLRACE_SECRET_TEST_SECRET", SECRET_KEY)
    keys = {"access_key": "env:MILLRACE_SECRET_TEST_ACCESS", "secret_key": "env:MILLRACE_SECRET_TEST_SECRET"}
    place = {"path": f"s3://{server.bucket()}/exports/daily", "endpoint": server.endpoint, "region": REGION}
    return _target({**place, **keys, **more})


def google_target(request: pytest.FixtureRequest, **more: Any) -> SinkTarget:
    patch = request.getfixturevalue("monkeypatch")
    patch.setenv("MILLRACE_SECRET_TEST_ACCOUNT", service_account_key())
    name = request.getfixturevalue("tmp_path").name
    endpoint = request.getfixturevalue("storage_url")
    place = {"path": f"gs://{BUCKET}/{name}", "endpoint": endpoint, "credentials": "env:MILLRACE_SECRET_TEST_ACCOUNT"}
    return _target({**place, **more})


@cache
def service_account_key() -> str:
    """A key file as Google hands it out, of an account that nobody has."""
    key = rsa.generate_private_key(65537, 2048)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    account = {"type": "service_account", "client_email": "millrace@test", "private_key_id": "1", "private_key": text}
    return json.dumps({**account, "token_uri": "http://127.0.0.1:1/nobody-asks-for-tokens"})


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
    Path(path.removeprefix("file://")).parent.write_text("not a folder")
    return target
