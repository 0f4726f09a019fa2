"""A misspelt setting is noticed; one without a value is not set; a Spark cluster has a secret."""

import pytest
from pydantic import ValidationError

from millrace.settings import Settings, SparkSettings, unread


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
