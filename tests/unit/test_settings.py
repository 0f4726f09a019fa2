"""A misspelt setting is noticed."""

from millrace.settings import unread


def test_what_nothing_reads_is_told_with_what_may_be_meant() -> None:
    read = ("MILLRACE_HOME", "MILLRACE_KAFKA__HEAP_MB", "MILLRACE_URL", "MILLRACE_SECRET_ANY", "MILLRACE_SPARK", "PATH")
    assert unread(read) == {}
    assert unread(("MILLRACE_KAFAK__HEAP_MB", "MILLRACE_HOEM", "MILLRACE_ZZ")) == {
        "MILLRACE_KAFAK__HEAP_MB": "MILLRACE_KAFKA__HEAP_MB",
        "MILLRACE_HOEM": "MILLRACE_HOME",
        "MILLRACE_ZZ": None,
    }
