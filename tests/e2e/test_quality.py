"""Rules of quality on the real platform: rows rejected and flagged, imports held, released and cancelled, the trend."""

from pathlib import Path
from typing import Any

import polars as pl

from millrace.client import FileOptions, Submission
from tests.support.platform import RunningPlatform, record
from tests.support.waiting import wait_until

READINGS = record(
    "readings", ("id", "long"), ("speed", ["null", "double"]), key=("id",),
    publish="atomic", rules=[{"name": "once", "unique": "key", "action": "hold"}],
)  # fmt: skip
AGREED: list[dict[str, Any]] = [
    {"name": "possible", "column": "speed", "min": 0, "action": "reject"},
    {"name": "fast", "check": "speed <= 100", "action": "flag"},
]


def shown(platform: RunningPlatform) -> list[int]:
    table = platform.home.table("quality", "readings")
    return pl.scan_delta(str(table)).sort("id").collect()["id"].to_list()


def sent(platform: RunningPlatform, path: Path, rows: str) -> str:
    path.write_text("id,speed\n" + rows)
    return platform.client.imports.send_file(path, Submission("quality", "readings", FileOptions()))["id"]


def until(platform: RunningPlatform, import_id: str, state: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        document = platform.client.imports.show(import_id, wait=1, or_held=True)
        return dict(document) if document["state"] == state else None

    document = wait_until(found, 120, f"import {import_id} to be {state}")
    assert document is not None
    return document


def verdicts(report: dict[str, Any]) -> dict[str, tuple[str, int]]:
    return {rule["name"]: (rule["verdict"], rule["broken"]) for rule in report["report"]["rules"]}


def test_rules_of_quality_from_the_agreement_to_the_trend(platform: RunningPlatform, tmp_path: Path) -> None:
    client = platform.client
    client.tenants.apply("quality", {"client": "quality", "rules": AGREED})
    client.tables.apply("quality", "readings", READINGS)

    first = until(platform, sent(platform, tmp_path / "1.csv", "1,5\n2,-1\n3,500\n4,\n"), "completed")
    assert first["rows"]["rejected"] == 1
    assert [row["reasons"][0]["rule"] for row in client.rejected.list(first["id"])] == ["possible"]
    report = client.quality.of_import(first["id"])
    assert verdicts(report) == {"possible": ("broken", 1), "fast": ("broken", 1), "once": ("kept", 0)}
    assert next(rule for rule in report["report"]["rules"] if rule["name"] == "fast")["samples"] == [3]
    assert shown(platform) == [1, 3, 4]

    held = until(platform, sent(platform, tmp_path / "2.csv", "7,1\n8,1\n7,2\n"), "held")
    assert held["error"]["code"] == "held"
    assert verdicts(client.quality.of_import(held["id"]))["once"] == ("broken", 1)
    assert shown(platform) == [1, 3, 4], "nobody sees the rows of an atomic import that is held"
    client.imports.release(held["id"])
    until(platform, held["id"], "completed")
    assert shown(platform) == [1, 3, 4, 7, 8]

    dropped = until(platform, sent(platform, tmp_path / "3.csv", "9,1\n9,2\n"), "held")
    client.imports.cancel(dropped["id"])
    until(platform, dropped["id"], "cancelled")
    assert 9 not in shown(platform)

    client.tenants.apply("quality", {"client": "quality", "rules": [{**AGREED[0], "min": 2}]})
    wait_until(
        lambda: client.tables.show("quality", "readings")["revision"] == 2, 60, "the table to take the new rules over"
    )
    last = until(platform, sent(platform, tmp_path / "4.csv", "10,1\n11,3\n"), "completed")
    assert last["rows"]["rejected"] == 1

    trend = client.quality.of_table("quality", "readings")
    assert [item["state"] for item in trend["items"]] == ["completed", "cancelled", "completed", "completed"]
    possible = next(rule for rule in trend["rules"] if rule["name"] == "possible")
    assert (possible["imports"], possible["broken"], possible["latest_percent"]) == (4, 2, 50.0)
    events = [
        event["type"] for event in client.events.page(limit=1000, newest=True)["items"] if held["id"] in str(event)
    ]
    assert {"millrace.import.held", "millrace.import.released", "millrace.import.quality"} <= set(events)
    printed = platform.cli("quality", held["id"])
    assert (printed.returncode, "once" in printed.stdout) == (0, True)
    assert "possible" in platform.cli("quality", "quality/readings").stdout


def test_an_import_over_its_error_budget_is_held_where_the_agreement_says_so(
    platform: RunningPlatform, tmp_path: Path
) -> None:
    client, rows = platform.client, "1,5\n2,x\n3,y\n"
    client.tenants.apply("quality", {"client": "quality", "max_rejected": 1, "on_budget": "hold"})
    client.tables.apply("quality", "readings", {**READINGS, "rules": []})
    before = shown(platform)
    held = until(platform, sent(platform, tmp_path / "over.csv", rows), "held")
    assert held["error"]["message"] == "Held by rule error_budget."
    assert held["rows"]["rejected"] == 2
    assert shown(platform) == before, "nobody sees the rows of a held atomic import"
    client.imports.release(held["id"])
    assert until(platform, held["id"], "completed")["rows"]["accepted"] == 1
    assert shown(platform) == sorted({*before, 1})

    kept = until(platform, sent(platform, tmp_path / "within.csv", "1,5\n2,x\n"), "completed")
    assert kept["rows"]["rejected"] == 1
    client.tables.apply("quality", "readings", {**READINGS, "rules": [], "on_budget": "stop"})
    failed = until(platform, sent(platform, tmp_path / "stop.csv", rows), "failed")
    assert failed["error"]["code"] == "too_many_rejected", "the table says what happens, the agreement how many"
