"""Spans on a real platform: BEGIN before, END once and only when everything is durable, ABORTED with the culprit's name."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from millrace.client import Millrace, Problem, Submission
from tests.support.hook_target import hook_target
from tests.support.platform import RunningPlatform, record
from tests.support.waiting import wait_until

ITEMS = record("items", ("id", "long"), ("name", "string"), key=("id",))
NOTES = record("notes", ("id", "long"), ("text", "string"), key=("id",))
END_SECONDS = 60.0


def write(path: Path, *rows: str, header: str = "id,name") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def upload(client: Millrace, target: str, path: Path, span: str) -> dict[str, Any]:
    tenant, table = target.split("/")
    return dict(client.imports.send_file(path, Submission(tenant, table, span=span)))


def place(events: list[dict[str, Any]], kind: str, subject: str) -> int:
    found = [at for at, e in enumerate(events) if (e["type"], e["subject"]) == (f"millrace.{kind}", subject)]
    assert len(found) == 1, f"{kind} of {subject}: {len(found)} times"
    return found[0]


def test_a_span_over_two_tables_begins_before_and_ends_once_after_all_of_it(
    platform: RunningPlatform, tmp_path: Path
) -> None:
    items, notes = platform.declare("spanning", ITEMS), platform.declare("spanning", NOTES)
    spans = platform.client.spans
    with hook_target() as hook:
        secret = platform.client.webhooks.add("spanning", "ops", hook.url, types=["span.*"])["secret"]
        spans.begin("spanning", "nightly-2026-11-15")
        first = upload(platform.client, items, write(tmp_path / "i.csv", "1,a", "2,b", "x,c"), "nightly-2026-11-15")
        second = upload(
            platform.client, notes, write(tmp_path / "n.csv", "7,hello", header="id,text"), "nightly-2026-11-15"
        )
        assert spans.show("spanning", "nightly-2026-11-15")["state"] == "open"
        spans.end("spanning", "nightly-2026-11-15")
        ended = spans.wait("spanning", "nightly-2026-11-15", timeout=END_SECONDS)
        assert pl.scan_delta(str(platform.home.table("spanning", "items"))).collect().height == 2, "END is true"
        assert pl.scan_delta(str(platform.home.table("spanning", "notes"))).collect().height == 1
        wait_until(lambda: len(hook.received) == 2, END_SECONDS, "BEGIN and END by webhook")
    assert (ended["state"], ended["imports"]) == ("ended", 2)
    assert ended["rows"] == {"read": 4, "accepted": 3, "rejected": 1, "ignored": 0}
    begun, over = hook.received
    assert [begun.event["type"], over.event["type"]] == ["millrace.span.begun", "millrace.span.ended"]
    assert begun.is_signed_with(secret)
    assert over.is_signed_with(secret)
    assert over.event["data"]["rows"] == ended["rows"]
    interval = over.event["data"]["interval"]
    assert interval["begun_us"] < interval["ended_us"]
    events = platform.events(tenant="spanning")
    begins, ends = place(events, "span.begun", "nightly-2026-11-15"), place(events, "span.ended", "nightly-2026-11-15")
    for import_id in (first["id"], second["id"]):
        assert begins < place(events, "import.admitted", import_id)
        assert place(events, "import.completed", import_id) < ends
    assert over.id == events[ends]["id"]


def test_a_late_upload_into_an_ended_span_is_refused(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("tardy", ITEMS)
    spans = platform.client.spans
    spans.begin("tardy", "early")
    spans.end("tardy", "early")
    assert spans.wait("tardy", "early", timeout=END_SECONDS)["state"] == "ended"
    with pytest.raises(Problem) as refused:
        upload(platform.client, target, write(tmp_path / "late.csv", "1,a"), "early")
    assert (refused.value.status, refused.value.code) == (409, "span_over")
    with pytest.raises(Problem) as refused:
        upload(platform.client, target, write(tmp_path / "late.csv", "1,a"), "never-begun")
    assert (refused.value.status, refused.value.code) == (404, "no_span")
    assert spans.show("tardy", "early")["state"] == "ended"
    assert platform.client.imports.list(tenant="tardy") == []


def test_nested_spans_end_from_within(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("nesting", ITEMS)
    spans = platform.client.spans
    spans.begin("nesting", "a/b/c")
    upload(platform.client, target, write(tmp_path / "deep.csv", "1,a", "2,b"), "a/b/c")
    upload(platform.client, target, write(tmp_path / "top.csv", "3,c"), "a")
    for name in ("a", "a/b", "a/b/c"):
        spans.end("nesting", name)
    assert spans.wait("nesting", "a", timeout=END_SECONDS)["state"] == "ended"
    assert {span["name"]: (span["state"], span["imports"]) for span in spans.list("nesting")} == {
        "a": ("ended", 2), "a/b": ("ended", 1), "a/b/c": ("ended", 1),
    }  # fmt: skip
    assert spans.show("nesting", "a")["rows"]["accepted"] == 3
    events = platform.events(tenant="nesting")
    ends = [place(events, "span.ended", name) for name in ("a/b/c", "a/b", "a")]
    assert ends == sorted(ends)


def test_a_failed_member_aborts_the_span_and_is_named_by_the_command(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("failing", ITEMS)
    good, bad = write(tmp_path / "good.csv", "1,a"), write(tmp_path / "bad.csv", "x,a", "y,b")
    words = ("--tenant", "failing")
    assert platform.cli("span", "begin", "doomed/part", *words).returncode == 0
    assert platform.cli("import", target, str(good), "--span", "doomed/part").returncode == 0
    assert platform.cli("import", target, str(bad), "--span", "doomed/part").returncode == 1
    (culprit,) = [each["id"] for each in platform.client.imports.list(tenant="failing") if each["state"] == "failed"]
    for name in ("doomed/part", "doomed"):
        waited = platform.cli("span", "wait", name, *words)
        assert waited.returncode == 1
        assert "aborted; 2 imports" in waited.stdout
        assert f"because of {culprit}" in waited.stdout
    place(platform.events(tenant="failing"), "span.aborted", "doomed")


def test_a_cancelled_member_aborts_the_span(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("stopping-span", ITEMS)
    spans = platform.client.spans
    spans.begin("stopping-span", "stopped")
    path = tmp_path / "large.csv"
    path.write_text("id,name\n" + "".join(f"{n},{'x' * 50}\n" for n in range(60_000)))
    upload = platform.client.imports.begin_upload(path, Submission(*target.split("/"), span="stopped"))
    platform.client.imports.cancel(upload.import_id)
    aborted = spans.wait("stopping-span", "stopped", timeout=END_SECONDS)
    assert (aborted["state"], aborted["error"]["member"]) == ("aborted", upload.import_id)


def test_a_span_that_nobody_uses_is_aborted_by_its_lease(platform: RunningPlatform) -> None:
    platform.declare("leasing", ITEMS)
    spans = platform.client.spans
    spans.begin("leasing", "forgotten", lease_seconds=1)
    aborted = spans.wait("leasing", "forgotten", timeout=END_SECONDS)
    assert (aborted["state"], aborted["error"]["code"]) == ("aborted", "expired")


def test_folders_become_spans(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("folders", ITEMS)
    paths = [
        write(tmp_path / "night" / "a" / "1.csv", "1,a"),
        write(tmp_path / "night" / "a" / "2.csv", "2,b"),
        write(tmp_path / "night" / "b" / "3.csv", "3,c", "4,d"),
        write(tmp_path / "night" / "4.csv", "5,e"),
    ]
    words = ("--tenant", "folders")
    assert platform.cli("span", "begin", "all", *words).returncode == 0
    done = platform.cli("import", target, *map(str, paths), "--span", "all", "--span-per-folder")
    assert done.returncode == 0, done.stderr
    spans = platform.client.spans
    assert {span["name"]: (span["state"], span["imports"], span["rows"]["accepted"]) for span in spans.list("folders")} == {
        "all": ("open", 4, 5), "all/night": ("ended", 4, 5), "all/night/a": ("ended", 2, 2), "all/night/b": ("ended", 1, 2),
    }  # fmt: skip
    waited = platform.cli("span", "end", "all", "--wait", *words)
    assert waited.returncode == 0, waited.stdout
    assert "4 imports; rows: 5 read, 5 accepted" in waited.stdout
    late = platform.cli("import", target, str(paths[0]), "--span", "all/night/a")
    assert late.returncode == 1
    assert "is ended" in late.stderr
