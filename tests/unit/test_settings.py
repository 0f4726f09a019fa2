"""A misspelt setting is noticed; one without a value is not set; a Spark cluster has a secret."""

import importlib
import inspect
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from pydantic import ValidationError

from millrace.model.errors import Invalid
from millrace.settings import Settings, SparkSettings, unread, wrong_settings_end


def test_what_nothing_reads_is_told_with_what_may_be_meant() -> None:
    read = ("MILLRACE_HOME", "MILLRACE_KAFKA__HEAP_MB", "MILLRACE_URL", "MILLRACE_SECRET_ANY", "MILLRACE_SPARK", "PATH")
    assert unread(read) == {}
    assert unread(("MILLRACE_KAFAK__HEAP_MB", "MILLRACE_HOEM", "MILLRACE_ZZ")) == {
        "MILLRACE_KAFAK__HEAP_MB": "MILLRACE_KAFKA__HEAP_MB",
        "MILLRACE_HOEM": "MILLRACE_HOME",
        "MILLRACE_ZZ": None,
    }


@pytest.mark.parametrize(
    "name", ["HOME", "FILES_ROOT", "STORE_URL", "KMS__FOLDER", "KAFKA__HEAP_MB", "KAFKA__OPTIONS", "LAKE__LOCATION"]
)
def test_a_variable_without_a_value_is_not_set(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv(f"MILLRACE_{name}", raising=False)
    unset = Settings()
    monkeypatch.setenv(f"MILLRACE_{name}", "")
    assert Settings() == unset


@pytest.mark.parametrize("master", ["spark://host:7077", "local-cluster[2,1,1024]"])
def test_a_spark_cluster_needs_a_secret_or_a_word_that_it_has_none(master: str) -> None:
    with pytest.raises(ValidationError, match=r"spark\.authenticate\.secret"):
        SparkSettings.model_validate({"master": master})
    for options in ({"spark.authenticate.secret": "s3cret"}, {"spark.authenticate": "false"}):
        settings = SparkSettings.model_validate({"master": master, "options": options})
        assert "s3cret" not in repr(settings)


@pytest.mark.parametrize("master", [None, "local", "local[6,4]", "local[*]", "k8s://https://host:443", "yarn"])
def test_other_masters_make_their_secret_themselves(master: str | None) -> None:
    SparkSettings.model_validate({"master": master})


SECRET = "hvs.s3cret"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("KMS__TOKN", SECRET, "MILLRACE_KMS__TOKN is no setting. Is MILLRACE_KMS__TOKEN meant?"),
        ("KMS", SECRET, "MILLRACE_KMS is not JSON."),
        ("KMS__TOKEN__X", SECRET, "MILLRACE_KMS__TOKEN: "),
        ("API__TLS_CERT", "/x", "MILLRACE_API__TLS_CERT and MILLRACE_API__TLS_KEY belong together"),
        ("API__TRUSTED_PROXIES", "10.0.0.0/8", 'For example: MILLRACE_API__TRUSTED_PROXIES=["10.0.0.0/8"]'),
        ("API__TRUSTED_PROXIES", '["hvs.s3cret"]', 'For example: MILLRACE_API__TRUSTED_PROXIES=["10.0.0.0/8"]'),
        ("SECRETS__SHARED", SECRET, "MILLRACE_SECRETS__SHARED is not JSON."),
        ("SECRETS__SHARED", '{"hvs.s3cret": ["acme"]}', 'MILLRACE_SECRETS__SHARED={"env:'),
        ("KAFKA__HEAP_MB", SECRET, "For example: MILLRACE_KAFKA__HEAP_MB=512"),
        ("KAFKA__OPTIONS", '{"sasl.password": ["hvs.s3cret"]}', "MILLRACE_KAFKA__OPTIONS: "),
    ],
)
def test_a_wrong_setting_is_named_and_its_value_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str
) -> None:
    monkeypatch.setenv(f"MILLRACE_{name}", value)
    with pytest.raises(Invalid) as refused:
        Settings()
    line = f"{refused.value.message} {refused.value.remedy}"
    assert told in line
    assert SECRET not in "".join(traceback.format_exception(refused.value))
    with pytest.raises(SystemExit, match=re.escape(line)), wrong_settings_end():
        Settings()


@pytest.mark.parametrize("module", ["api", "plane", "manage", "manage.unseal", "k8s.broker", "k8s.probe"])
def test_every_process_reads_its_settings_so(module: str) -> None:
    source = inspect.getsource(importlib.import_module(f"millrace.{module}{'' if '.' in module else '.__main__'}"))
    assert source.count("Settings()") == 1
    assert source.index("with wrong_settings_end():") < source.index("Settings()")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("KAFKA__HEAP_MB", "512M", "MILLRACE_KAFKA__HEAP_MB is 512M: "),
        ("KAFKA__HEAP_MB", "-1", "MILLRACE_KAFKA__HEAP_MB is -1: "),
        ("API__LEASE_SECONDS", "soon", "MILLRACE_API__LEASE_SECONDS is soon: "),
        ("KMS__KIND", "valt", "MILLRACE_KMS__KIND is valt: "),
    ],
)
def test_a_value_that_is_no_secret_is_shown_with_an_example_in_one_line(
    tmp_path: Path, name: str, value: str, told: str
) -> None:
    words = [sys.executable, "-m", "millrace.cli.main", "--home", str(tmp_path), "up"]
    environ = {**os.environ, f"MILLRACE_{name}": value}
    ended = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(told)
    assert f"For example: MILLRACE_{name}=" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_command_says_it_in_a_line(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "millrace.cli.main", "--home", str(tmp_path), "up", "--tls-cert", "/x"]
    environ = {**os.environ, "MILLRACE_KMS__TOKN": SECRET}
    ended = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "MILLRACE_KMS__TOKN is no setting" in ended.stderr
    assert "MILLRACE_API__TLS_KEY" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert SECRET not in ended.stderr
