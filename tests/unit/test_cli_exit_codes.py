"""What scripts rely on: exit codes, JSON on standard output, sentences on standard error."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.fake_platform import TOKEN, FakePlatform, Refuse, Stall, fake_platform
from tests.support.processes import started
from tests.support.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
Run = Callable[..., "subprocess.CompletedProcess[str]"]
MISSING = {"code": "no_table", "detail": "There is no table acme/readings.", "remedy": "Apply its declaration first."}


@pytest.fixture
def fake() -> Iterator[FakePlatform]:
    with fake_platform() as platform:
        platform.answers["GET", "/v1/health"] = {"status": "ok", "parts": {"kafka": "ok"}}
        yield platform


@pytest.fixture
def home(fake: FakePlatform, tmp_path: Path) -> Path:
    (tmp_path / "client.json").write_text(json.dumps({"url": fake.url, "token": TOKEN}))
    return tmp_path


@pytest.fixture
def millrace(home: Path) -> Run:
    def run(*args: str, stdin: str = "", **environ: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "millrace.cli.main", *args],
            env={"MILLRACE_HOME": str(home), "PATH": "", "HOME": str(home), **environ},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def rows(tmp_path: Path) -> str:
    path = tmp_path / "rows.csv"
    path.write_text("id,name\n1,a\n2,b\n3,c\n")
    return str(path)


def test_an_import_that_is_durable_exits_0_with_one_line(fake: FakePlatform, millrace: Run, rows: str) -> None:
    done = millrace("import", "acme/readings", rows)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    assert "completed; rows: 3 read, 3 accepted, 0 rejected, 0 ignored; durable: delta 1/1; 2.00 s" in done.stdout
    assert fake.stored["imp_1"] == Path(rows).read_bytes()


def test_json_is_one_document_a_line_in_the_order_of_the_arguments(
    fake: FakePlatform, millrace: Run, rows: str, tmp_path: Path
) -> None:
    large = tmp_path / "large.csv"
    large.write_bytes(b"1,a\n" * 600_000)
    done = millrace("import", "acme/readings", str(large), rows, "--json", "--idempotency-key", "night")
    assert done.returncode == 0, done.stderr
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(d["id"], d["file_name"], d["state"]) for d in documents] == [
        ("imp_1", "large.csv", "completed"), ("imp_2", "rows.csv", "completed"),
    ]  # fmt: skip
    assert fake.keys == {"night:1": "imp_1", "night:2": "imp_2"}
    assert fake.stored["imp_1"] == large.read_bytes()
    assert done.stderr == ""


def test_imports_are_admitted_in_the_order_of_the_arguments(fake: FakePlatform, millrace: Run, tmp_path: Path) -> None:
    names = [f"{number}.csv" for number in range(12)]
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(b"1,a\n" * (400_000 if number % 3 else 1))
    done = millrace("import", "acme/readings", *(str(tmp_path / name) for name in names))
    assert done.returncode == 0, done.stderr
    assert [fake.queries[f"imp_{number + 1}"]["file_name"] for number in range(12)] == names


def test_options_tell_how_a_file_is_written(fake: FakePlatform, millrace: Run, rows: str) -> None:
    options = ["--no-header", "--delimiter", ";", "--null-text", "NULL", "--encoding", "latin-1", "--format", "csv"]
    assert millrace("import", "acme/readings", rows, *options).returncode == 0
    assert fake.queries["imp_1"] == {
        "format": "csv", "header": "false", "delimiter": ";", "null_text": "NULL", "encoding": "latin-1",
        "file_name": "rows.csv",
    }  # fmt: skip


def test_standard_input_is_imported(fake: FakePlatform, millrace: Run) -> None:
    done = millrace("import", "acme/readings", "-", stdin="id,name\n1,a\n")
    assert done.returncode == 0, done.stderr
    assert fake.stored["imp_1"] == b"id,name\n1,a\n"


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_an_import_that_did_not_complete_exits_1_and_says_why(
    fake: FakePlatform, millrace: Run, rows: str, state: str
) -> None:
    fake.outcome = {"state": state, "error": {"code": "x", "message": "It broke.", "remedy": "Mend it."}}
    done = millrace("import", "acme/readings", rows)
    assert done.returncode == 1
    assert "It broke. Mend it." in done.stderr


def test_rejects_fail_only_on_demand(fake: FakePlatform, millrace: Run, rows: str) -> None:
    fake.outcome = {"rows": {"read": 3, "accepted": 2, "rejected": 1, "ignored": 0}}
    assert millrace("import", "acme/readings", rows).returncode == 0
    assert millrace("import", "acme/readings", rows, "--fail-on-rejects").returncode == 1


def test_a_refused_file_exits_1_without_a_traceback(fake: FakePlatform, millrace: Run, rows: str) -> None:
    fake.refusals = [Refuse(200, {"status": "ok", "parts": {}}), Refuse(404, MISSING)]
    done = millrace("import", "acme/readings", rows, "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert (document["state"], document["error"]["code"]) == ("failed", "no_table")
    assert "There is no table acme/readings. Apply its declaration first." in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        ["import", "acme", "rows.csv"],
        ["import", "acme/readings", "missing.csv"],
        ["import", "acme/readings"],
        ["nonsense"],
        ["import", "acme/readings", "-", "--idempotency-key", "a\nb"],
        ["apply", "-f", "nothere"],
        ["errors", "imp_1", "--out", "nothere/bad.csv"],
        ["stream", "acme", "--home", "nothere"],
        ["truncate", "acme"],
    ],
)
def test_wrong_usage_exits_2(millrace: Run, line: list[str]) -> None:
    done = millrace(*line)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("line", [["status"], ["import", "acme/readings", "ROWS"], ["query", "select 1"], ["doctor"]])
def test_a_platform_that_is_away_exits_3_with_the_remedy(home: Path, millrace: Run, rows: str, line: list[str]) -> None:
    (home / "client.json").write_text(json.dumps({"url": "http://127.0.0.1:9", "token": TOKEN}))
    done = millrace(*[rows if word == "ROWS" else word for word in line], JAVA_HOME="")
    # A machine without Java is what the doctor reports first.
    assert done.returncode == 3 or (line == ["doctor"] and "Java" in done.stdout)
    assert "millrace up" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_the_doctor_misses_no_jars_but_the_platforms(home: Path, millrace: Run) -> None:
    for name in ("kafka", "spark"):
        (home / "jars" / f"{name}-1").mkdir(parents=True)
    done = millrace("doctor", "--json", MILLRACE_CACHE=str(home))
    checks = [json.loads(line) for line in done.stdout.splitlines()]
    assert [check["remedy"] for check in checks if check["check"] == "jars"] == [""]


def test_what_the_doctor_quotes_cannot_steer_the_terminal(fake: FakePlatform, millrace: Run) -> None:
    parked = {"sink": "delta", "table": "acme/t", "reason": "bad \x1b[2Jfile", "remedy": "Mend \x1b]0;it."}
    fake.answers["GET", "/v1/health"] = {"status": "ok", "parts": {}, "tables": [parked]}
    done = millrace("doctor")
    assert "acme/t: bad" in done.stdout
    assert "\x1b" not in done.stdout


def test_names_and_messages_cannot_steer_the_terminal(fake: FakePlatform, millrace: Run, tmp_path: Path) -> None:
    """Anybody who may send files names them; who releases an import sees the name."""
    fake.outcome = {"file_name": "a\x1b[2J.csv", "state": "failed"}
    fake.outcome["error"] = {"code": "bad", "message": "No column b\x1b]0;x\x07.", "remedy": "Mend it."}
    path = tmp_path / "a\x1b[2J.csv"
    path.write_text("id\n1\n")
    sent = millrace("import", "acme/readings", str(path))
    assert "a\\x1b[2J.csv: failed" in sent.stdout
    assert "No column b\\x1b]0;x\\x07." in sent.stderr
    missing = millrace("apply", "-f", str(tmp_path / "b\x1b[2J.yaml"))
    assert missing.returncode != 0
    assert "\x1b" not in sent.stdout + sent.stderr + missing.stderr


@pytest.mark.parametrize("command", ["status", "errors", "cancel", "discard"])
def test_a_table_in_place_of_an_import_is_told(fake: FakePlatform, millrace: Run, command: str) -> None:
    done = millrace(command, "acme/readings")
    assert done.returncode == 2
    assert "'acme/readings' is no id of an import. `millrace status` lists imports" in done.stderr.replace("\n", " ")


def test_a_home_without_a_platform_exits_3(millrace: Run, tmp_path: Path) -> None:
    done = millrace("status", "--home", str(tmp_path / "empty"))
    assert done.returncode == 3
    assert "No platform has been started" in done.stderr


def test_a_wrong_token_exits_1(home: Path, fake: FakePlatform, millrace: Run) -> None:
    (home / "client.json").write_text(json.dumps({"url": fake.url, "token": "mr_other"}))
    done = millrace("status")
    assert (done.returncode, done.stderr) == (1, "No valid token.\nGive one.\n")


def test_the_environment_names_a_platform_elsewhere(fake: FakePlatform, millrace: Run) -> None:
    done = millrace("status", "imp_1", "--json", MILLRACE_URL=fake.url, MILLRACE_TOKEN="mr_other", MILLRACE_HOME="")
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("command", [["status"], ["stream", "acme/readings"]])
@pytest.mark.parametrize(
    "url", ["nonsense", "ftp://127.0.0.1", "http://", "http://127.0.0.1:99999", "http://me:hush@127.0.0.1:9"]
)
def test_what_is_no_address_of_a_platform_is_refused_and_its_password_not_shown(
    millrace: Run, url: str, command: list[str]
) -> None:
    done = millrace(*command, MILLRACE_URL=url, MILLRACE_TOKEN="mr_other")
    assert done.returncode == 1
    assert done.stderr.startswith("MILLRACE_URL ")
    assert "For example: MILLRACE_URL=http://" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "hush" not in done.stderr


def test_an_address_without_a_token_names_the_variable_in_a_line(millrace: Run) -> None:
    done = millrace("status", MILLRACE_URL="http://127.0.0.1:9")
    assert done.returncode == 1
    assert done.stderr == (
        "MILLRACE_URL is http://127.0.0.1:9, and MILLRACE_TOKEN is not set. "
        "For example: MILLRACE_TOKEN=mr_… as `token create` showed it\n"
    )


@pytest.mark.parametrize(
    "line", [["--json", "status", "imp_1"], ["status", "--json", "imp_1"], ["status", "imp_1", "--json"]]
)
def test_global_options_are_understood_anywhere(fake: FakePlatform, millrace: Run, line: list[str]) -> None:
    fake.answers["GET", "/v1/tenants/acme/tables/readings"] = {"location": "somewhere"}
    done = millrace(*line)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {**fake.document("imp_1"), "location": "somewhere"}


def test_no_wait_returns_while_the_platform_works(fake: FakePlatform, millrace: Run, rows: str) -> None:
    fake.outcome = {"state": "processing", "ended_at": None}
    done = millrace("import", "acme/readings", rows, "--no-wait", "--json")
    assert (done.returncode, json.loads(done.stdout)["state"]) == (0, "processing")


def test_errors_come_page_by_page_as_json_lines(fake: FakePlatform, millrace: Run) -> None:
    found = [{"row": n, "line": n + 1, "raw": "1,\x1b[31mx", "reasons": []} for n in range(1, 6)]
    fake.pages = {None: {"items": found[:3], "next": "c"}, "c": {"items": found[3:], "next": None}}
    done = millrace("errors", "imp_1", "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == found
    shown = millrace("errors", "imp_1", "--limit", "3")
    assert "row 3, line 4: 1,\\x1b[31mx" in shown.stdout
    assert "\x1b" not in shown.stdout


def test_a_query_prints_every_digit(fake: FakePlatform, millrace: Run) -> None:
    result = {
        "columns": [{"name": "n", "type": "BIGINT"}, {"name": "x", "type": "DOUBLE"}],
        "rows": [[1234567, 0.12345]],
    }
    fake.answers["POST", "/v1/query"] = {**result, "truncated": False, "seconds": 0.01}
    assert millrace("query", "select 1").stdout.split() == ["n", "x", "1234567", "0.12345"]
    assert fake.bodies == [{"sql": "select 1"}]


def test_apply_says_what_became_of_each_document(fake: FakePlatform, millrace: Run) -> None:
    fake.answers["PUT", "/v1/tenants/client_a"] = {"revision": 2, "changed": False}
    done = millrace("apply", "-f", str(EXAMPLES / "client_a"), str(EXAMPLES / "client_b"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "tenant client_a unchanged", "tenant client_b created",
        "table client_a/analytics created", "table client_b/product_reviews created",
    ]  # fmt: skip


def test_a_declaration_that_nobody_has_evaluated_exits_3(fake: FakePlatform, millrace: Run) -> None:
    fake.answers["PUT", "/v1/tenants/client_a"] = {"op": "op_1", "state": "requested"}
    done = millrace("apply", "-f", str(EXAMPLES / "client_a" / "service_agreement.json"), "--json")
    assert (done.returncode, json.loads(done.stdout)["outcome"]) == (3, "requested")


def test_rejected_rows_are_written_to_a_file_by_its_suffix(millrace: Run, tmp_path: Path) -> None:
    assert millrace("errors", "imp_1", "--out", str(tmp_path / "bad.jsonl")).returncode == 0
    assert (tmp_path / "bad.jsonl").read_text() == "jsonl"
    assert millrace("errors", "imp_1", "--out", str(tmp_path / "bad.xls")).returncode == 2


def test_an_interrupt_cancels_what_is_not_yet_sent(fake: FakePlatform, home: Path, tmp_path: Path) -> None:
    (tmp_path / "large.csv").write_bytes(b"1,a\n" * 3_000_000)
    fake.patch_faults = [Stall(100)]
    fake.outcome = {"state": "receiving", "ended_at": None}
    command = [sys.executable, "-m", "millrace.cli.main", "import", "acme/readings", str(tmp_path / "large.csv")]
    environ = {"MILLRACE_HOME": str(home), "PATH": ""}
    with started(command, env=environ, stderr=subprocess.PIPE, text=True) as running:
        wait_until(
            lambda: ("GET", "/v1/imports/imp_1?wait=1&or_held=true") in fake.requests, 30, "the import is watched"
        )
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "imp_1" in said
    assert ("POST", "/v1/imports/imp_1/cancel") in fake.requests
    assert "Traceback" not in said


def test_a_stream_that_the_platform_cannot_take_now_exits_3(fake: FakePlatform, millrace: Run) -> None:
    fake.refusals = [Refuse(200, {"status": "ok", "parts": {}}), Refuse(503, {"detail": "Kafka is away."})]
    done = millrace("import", "acme/readings", "-", stdin="id\n1\n")
    assert done.returncode == 3
    assert "Kafka is away." in done.stderr


def test_a_place_that_cannot_be_written_is_told_without_a_traceback(millrace: Run, home: Path) -> None:
    rows = home / "rows.csv"
    rows.write_text("id\n1\n")
    refused = millrace("infer", str(rows), "--out", str(home / "missing" / "rows.yaml"))
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    assert "rows.yaml cannot be used: No such file or directory." in refused.stderr
