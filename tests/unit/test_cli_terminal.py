"""What people read: every list fits a terminal of 80 columns with its ids in one piece, counts agree with their nouns, and
events show what they say."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millrace.cli import printing
from millrace.cli.arguments import moment
from millrace.cli.board import Lines
from millrace.cli.fitting import fitted, shown_width
from millrace.cli.main import app
from millrace.cli.tracks import Track
from tests.support.fake_platform import TOKEN, FakePlatform, fake_platform

WIDTH = 80
IMPORT, RUN = "imp_01m7jnjq14bq8nb528cx89w5q9", "run_01m7jnjk07h6tve5fba3vvpw84"
MOMENT = "2026-11-16T16:41:48.123456+00:00"
LONG = "a rather long reason that a server far away gave in many words, and more"
ROWS = {"read": 1_000_000, "accepted": 999_999, "rejected": 1, "ignored": 0}
WAITING = {"kind": "sink", "text": f"sink warehouse: {LONG}", "remedy": "Mend it.", "since": MOMENT}
SINK = {
    "name": "warehouse", "kind": "postgres", "required": True, "waiting": 12, "bytes": 1 << 33, "lag_seconds": 12345.6,
    "last_version": 1_763_311_308_000_000, "refused_rows": 1, "parked_since": 1_763_311_308.0, "reason": LONG,
}  # fmt: skip
SPAN = {
    "name": "nightly/2026-11-16/a-long-name", "state": "ending", "imports": 1, "open_members": 1, "rows": ROWS,
    "seconds": 12345.678, "begun_at": MOMENT, "ended_at": None, "error": None, "tenant": "acme",
    "lease_seconds": 3600, "expires_at": MOMENT,
}  # fmt: skip
HOOK = {
    "name": "ops", "url": "https://hooks.example.org/a/long/path", "types": ["import.*", "span.ended"],
    "order": "as_they_come", "enabled": True, "delivered": 1_000_000, "given_up": 0,
    "lag": {"events": 10, "seconds": 1.5}, "last_error": {"message": LONG},
}  # fmt: skip
APP = {
    "tenant": "acme", "app": "nightly-batch", "agreement": {"app": {"mode": "batch"}, "schedule": "0 * * * *"},
    "status": {"state": "running", "run": RUN, "next_run_at": MOMENT},
}  # fmt: skip
APP_RUN = {
    "id": RUN, "app": "nightly-batch",
    "cause": "schedule", "state": "succeeded", "exit_code": 0, "started_at": MOMENT, "ended_at": MOMENT,
    "files": {"done": 1, "failed": 0}, "rows": ROWS,
}  # fmt: skip
FILE = {
    "file": "a-rather-long-name-of-a-file-from-somewhere.csv", "table": "readings", "import": IMPORT, "state": "done",
    "rows": ROWS, "error": {"message": LONG, "remedy": ""},
}  # fmt: skip
AUDIT = {
    "at": MOMENT, "who": "nightly-loader", "role": "operator", "from": "127.0.0.1", "tenant": "acme", "outcome": "200",
    "action": "POST /v1/imports/{import_id}/cancel", "subject": IMPORT, "request": "req_1",
}  # fmt: skip
TREND = {
    "rules": [{
        "name": "no_future_dates", "action": "hold", "imports": 20, "broken": 1, "latest_percent": 0.01,
        "mean_percent": 0.01, "goes": "up",
    }],
    "items": [{"import": IMPORT, "state": "completed", "ended_at": MOMENT, "rows": ROWS, "report": None}],
}  # fmt: skip
HISTORY = {
    "revision": 12,
    "generation": 1,
    "defined_at": MOMENT,
    "columns": [{"name": f"column{n}"} for n in range(20)],
}
TABLE = {"tenant": "acme", "table": "readings", "revision": 1, "primary_key": ["id"], "location": "/a/long/place" * 9}
TOKEN_DOCUMENT = {
    "name": "nightly", "tenant": "acme", "role": "writer", "tables": ["readings", "notes"], "expires_at": MOMENT,
    "last_used_at": MOMENT,
}  # fmt: skip
USAGE = {
    "days": [{
        "day": "2026-11-16", "rows_accepted": 10**9, "rows_rejected": 1, "bytes": 10**12, "imports": 1, "appends": 0,
        "chunks": 1, "storage_bytes": 10**12, "refused": 0,
    }],
    "quotas": {},
    "lag": {"open_imports": 1, "over_quota_seconds": 0.0, "platform_late_seconds": 0.0, "throttled_imports": {}},
}  # fmt: skip
REASON = {"rows": 12, "column": "placed", "rule": "type", "example": LONG}


def document(**more: Any) -> dict[str, Any]:
    return {
        "id": IMPORT, "tenant": "acme", "table": "readings", "state": "processing", "rows": ROWS,
        "chunks": {"sent": 10, "judged": 10}, "bytes": 9, "file_name": "measurements-2026-11-16.csv",
        "sinks": {"delta": {"durable_chunks": 10, "parked_chunks": 0, "refused_rows": 0},
                  "warehouse": {"durable_chunks": 1, "parked_chunks": 9, "refused_rows": 0}},
        "started_at": MOMENT, "ended_at": None, "error": None, "rows_per_second": 123456.0, "waiting_for": WAITING, **more,
    }  # fmt: skip


LISTS: list[tuple[list[str], dict[str, Any]]] = [
    (["status"], {"/v1/imports": {"items": [document()]}}),
    (["status", IMPORT], {f"/v1/imports/{IMPORT}": document()}),
    (["tables", "acme"], {"/v1/tenants/acme/tables": {"items": [TABLE]}}),
    (["history", "acme/readings"], {"/v1/tenants/acme/tables/readings/revisions": {"items": [HISTORY]}}),
    (["audit"], {"/v1/audit": {"items": [AUDIT]}}),
    (["usage", "--tenant", "acme"], {"/v1/tenants/acme/usage": USAGE}),
    (["token", "list"], {"/v1/tokens": {"items": [TOKEN_DOCUMENT]}}),
    (["sink", "list", "acme/readings"], {"/v1/tenants/acme/tables/readings/sinks": {"items": [SINK]}}),
    (["app", "list"], {"/v1/apps": {"items": [APP], "backend": None}}),
    (["app", "runs", "acme"], {"/v1/tenants/acme/app/runs": {"items": [APP_RUN]}}),
    (["app", "files", "acme", RUN], {f"/v1/tenants/acme/app/runs/{RUN}/files": {"items": [FILE]}}),
    (["span", "list", "--tenant", "acme"], {"/v1/tenants/acme/spans": {"items": [SPAN]}}),
    (["span", "show", "a", "--tenant", "acme"], {"/v1/tenants/acme/spans/a": SPAN}),
    (["webhook", "list", "--tenant", "acme"], {"/v1/tenants/acme/subscriptions": {"items": [HOOK]}}),
    (["tenant", "list"], {"/v1/tenants": {"items": [{"name": "acme", "revision": 1, "restorable_until": MOMENT}]}}),
    (["quality", "acme/readings"], {"/v1/tenants/acme/tables/readings/quality": TREND}),
    (["reasons", IMPORT], {f"/v1/imports/{IMPORT}/errors/reasons": {"items": [REASON]}}),
]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePlatform]:
    with fake_platform() as platform:
        monkeypatch.setenv("MILLRACE_URL", platform.url)
        monkeypatch.setenv("MILLRACE_TOKEN", TOKEN)
        yield platform


def run(fake: FakePlatform, words: list[str], answers: dict[str, Any]) -> Any:
    fake.answers |= {("GET", path): answer for path, answer in answers.items()}
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, (done.output, done.exception)
    return done


def ids_in(answers: Any) -> set[str]:
    return set(re.findall(r"\b(?:imp|run)_[0-9a-z]{26}\b", str(answers)))


@pytest.mark.parametrize(("words", "answers"), LISTS, ids=[" ".join(words[:2]) for words, _ in LISTS])
def test_every_list_fits_80_columns_with_its_ids_in_one_piece(
    fake: FakePlatform, monkeypatch: pytest.MonkeyPatch, words: list[str], answers: dict[str, Any]
) -> None:
    monkeypatch.setattr(printing, "terminal_width", lambda: WIDTH)
    monkeypatch.setenv("NO_COLOR", "1")
    shown = run(fake, words, answers).stdout
    assert [line for line in shown.splitlines() if shown_width(line) > WIDTH] == []
    for each in ids_in(answers.values()):
        assert re.search(rf"(?m)(^|\s){each}(\s|$)", shown), f"{each} is not in one piece:\n{shown}"


@pytest.mark.parametrize(("words", "answers"), LISTS, ids=[" ".join(words[:2]) for words, _ in LISTS])
def test_in_a_pipe_nothing_is_left_out_and_no_row_is_broken(
    fake: FakePlatform, words: list[str], answers: dict[str, Any]
) -> None:
    done = run(fake, words, answers)
    assert "No room" not in done.stderr
    for each in ids_in(answers.values()):
        assert re.search(rf"(?m)(^|\s){each}(\s|$)", done.stdout)


def test_what_has_no_room_is_named(fake: FakePlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printing, "terminal_width", lambda: WIDTH)
    done = run(fake, *LISTS[0])
    assert "No room for: " in done.stderr
    assert "rows/s" in done.stderr
    assert f"{IMPORT} waits for sink warehouse: {LONG} Mend it." in done.stderr


def test_wide_characters_count_twice_and_folded_text_keeps_its_words() -> None:
    table = fitted(("id", "text"), [("a", "漢字 kana and more words")], (False, False), 16)
    assert table.lines == ["id  text", "a   漢字 kana", "    and more", "    words"]


@pytest.mark.parametrize(
    ("rows", "told"), [([], "0 rows; "), ([[1]], "1 row; "), ([[1], [2]], "2 rows; ")], ids=["none", "one", "two"]
)
def test_counts_agree_with_their_nouns(fake: FakePlatform, rows: list[list[int]], told: str) -> None:
    result = {"columns": [{"name": "n"}], "rows": rows, "truncated": False, "seconds": 0.1}
    fake.answers["POST", "/v1/query"] = result
    assert CliRunner().invoke(app, ["query", "select 1"]).stderr.startswith(told)


def event(kind: str, **data: Any) -> dict[str, Any]:
    return {"id": "e1", "time": MOMENT, "type": f"millrace.{kind}", "subject": "acme/readings", "data": data}


def test_an_event_s_line_shows_what_it_says_and_no_none(fake: FakePlatform) -> None:
    changed = event("table.changed", revision=2, span=None, changes=["drop column b", "add column c long"])
    shown = run(fake, ["events"], {"/v1/events": {"items": [changed], "last": 7}}).stdout
    assert "None" not in shown
    assert "revision=2" in shown
    assert "changes=drop column b; add column c long" in shown


@pytest.mark.parametrize(
    ("words", "asked", "first"),
    [
        ([], "/v1/events?after=0&limit=1&newest=true", 42),
        (["--after", "6"], None, 7),
        (["--after", "0"], None, 1),
        (["--since", "2026-11-16T08:00:00Z"], "/v1/events?after=0&limit=1&since=2026-11-16T08%3A00%3A00%2B00%3A00", 41),
    ],
)
def test_following_begins_now_unless_it_is_told_otherwise(
    fake: FakePlatform, monkeypatch: pytest.MonkeyPatch, words: list[str], asked: str | None, first: int
) -> None:
    heard: list[str] = []

    def stop(_session: Any, shown: dict[str, Any]) -> None:
        heard.append(shown["id"])
        raise KeyboardInterrupt

    monkeypatch.setattr("millrace.cli.accounts._show_event", stop)
    fake.answers["GET", "/v1/events"] = {"items": [event("x")], "last": 41}
    assert CliRunner().invoke(app, ["events", "--follow", *words]).exit_code == 0
    assert heard == [f"e{first}"]
    assert [path for _, path in fake.requests if path != "/v1/events/stream"] == ([asked] if asked else [])


def test_a_time_may_be_so_long_ago() -> None:
    now = datetime.now(UTC)
    assert abs(moment("90m") - (now - timedelta(minutes=90))) < timedelta(seconds=10)
    assert moment("2026-11-16T08:00:00+02:00") == datetime(2026, 11, 16, 6, tzinfo=UTC)


def test_what_is_no_time_is_refused(fake: FakePlatform) -> None:
    done = CliRunner().invoke(app, ["events", "--since", "yesterday"])
    assert done.exit_code == 2
    assert "10m, 2h, 3d or 2026-11-16T08:00" in " ".join(done.stderr.split())


def test_the_version_is_told() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, "millrace 0.1.0\n")


def test_applying_says_what_changed(fake: FakePlatform, tmp_path: Path) -> None:
    (tmp_path / "readings.yaml").write_text(
        "tenant: acme\nschema: {type: record, name: readings, fields: [{name: id, type: long}]}\n"
    )
    changed = {"revision": 2, "changed": True, "changes": ["drop column speed"], "warnings": []}
    fake.answers["PUT", "/v1/tenants/acme/tables/readings"] = changed
    done = CliRunner().invoke(app, ["apply", "-f", str(tmp_path)])
    assert done.stdout == "table acme/readings changed\n  drop column speed\n"


def test_a_run_tells_accepted_and_rejected_rows(fake: FakePlatform) -> None:
    fake.answers["GET", "/v1/tenants/acme/app/runs"] = {"items": []}

    def begun(*_: Any) -> dict[str, Any]:
        return {**APP_RUN, "state": "succeeded"}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millrace.cli.apps._ended", begun)
        fake.answers["POST", "/v1/tenants/acme/app/run"] = {"asked": True, "app": "nightly-batch"}
        done = CliRunner().invoke(app, ["app", "run", "acme", "--wait"])
    assert "rows: 1,000,000 read, 999,999 accepted, 1 rejected" in done.stdout


def test_progress_in_a_log_says_what_an_import_waits_for(
    fake: FakePlatform, capsys: pytest.CaptureFixture[str]
) -> None:
    track = Track("a.csv", None, "acme", "readings", import_id=IMPORT)
    board = Lines([track], quiet=False)
    track.document = document()  # type: ignore[assignment]
    for _ in range(3):
        board.show()
    said = capsys.readouterr().err.splitlines()
    assert said[1:] == [f"{IMPORT} a.csv: waits for sink warehouse: {LONG} Mend it."]
