"""A misspelt setting is noticed; one without a value is not set."""

import pytest

from millrace.settings import Settings, unread


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
