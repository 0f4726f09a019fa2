"""The trend of a table's rules: shares of rows, newest first, and which way they go."""

from typing import Any

import pytest

from millrace.api.documents.trend import trend


def item(broken: int | None, of: int = 100) -> dict[str, Any]:
    if broken is None:
        return {"import": "i", "report": None}
    told = {"name": "r", "kind": "range", "action": "flag", "broken": broken, "of": of}
    return {"import": "i", "report": {"rules": [{**told, "verdict": "broken" if broken else "kept"}]}}


@pytest.mark.parametrize(
    ("newest_first", "goes"),
    [((9, 8, 1, 0), "worse"), ((0, 1, 8, 9), "better"), ((5, 5, 5), "steady"), ((5,), "unknown")],
)
def test_the_newer_half_is_compared_with_the_older(newest_first: tuple[int, ...], goes: str) -> None:
    [rule] = trend([item(broken) for broken in newest_first])["rules"]
    assert rule["goes"] == goes
    assert rule["latest_percent"] == newest_first[0]


def test_imports_without_a_report_and_rules_without_rows_are_passed_over() -> None:
    [rule] = trend([item(None), item(0, of=0), item(3)])["rules"]
    assert (rule["imports"], rule["broken"], rule["latest_percent"]) == (2, 1, 3.0)
