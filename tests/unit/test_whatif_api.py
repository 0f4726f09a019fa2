"""What-ifs over REST and on the command line: the real route, client and commands, on a server without Kafka and Spark."""

import gzip
import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
import yaml
from fastapi import FastAPI
from sqlalchemy import insert

from millrace.api.problems import add_problems
from millrace.api.routes import whatif
from millrace.api.shares import Shares
from millrace.auth.quotas import Quotas
from millrace.auth.tokens import Tokens
from millrace.client import FileOptions, Millrace, Problem
from millrace.declare.table import parse_table
from millrace.exchange.mailboxes import open_exchange
from millrace.model.table import define
from millrace.settings import LimitSettings, Settings
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from tests.support.waiting import wait_until

ADMIN, OTHER = "mr_admin", "mr_other"
COLUMNS = [{"name": "id", "type": "int"}, {"name": "v", "type": "int"}]
DECLARATION = {"schema": {"type": "record", "name": "readings", "fields": COLUMNS}, "primary_key": ["id"]}
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("server")
    store = ControlStore(f"sqlite:///{root / 'control.db'}")
    tokens = Tokens(store)
    tokens.keep(ADMIN, "admin", None)
    tokens.keep(OTHER, "other", "other")
    _declare(store)
    app = FastAPI()
    add_problems(app)
    app.include_router(whatif.router)
    app.state.services = SimpleNamespace(
        store=store,
        tokens=tokens,
        exchange=open_exchange(root),
        sealing=None,
        cluster=None,
        quotas=Quotas(store),
        shares=Shares(LimitSettings()),
        settings=Settings(home=root),
    )
    config = uvicorn.Config(app, port=0, log_level="warning", loop="asyncio", lifespan="off")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        wait_until(lambda: running.started, 20, "the server to start")
        yield f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join(20)
        store.close()


def _declare(store: ControlStore) -> None:
    definition = define("acme", parse_table(DECLARATION), 3)
    row = {
        "tenant": "acme", "name": "readings", "folded_name": "readings", "definition": definition.to_json().decode(),
        "last_version": 0, "defined_us": 0, "floor": 0, "open_imports": 0, "dropped_us": None, "is_purged": False,
    }  # fmt: skip
    with store.write() as connection:
        connection.execute(insert(t.tables).values(row))


@pytest.fixture
def client(server: str) -> Iterator[Millrace]:
    with Millrace(server, ADMIN) as connection:
        yield connection


@pytest.fixture
def millrace(server: str, tmp_path: Path) -> Run:
    (tmp_path / "client.json").write_text(json.dumps({"url": server, "token": ADMIN}))

    def run(*args: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "millrace.cli.main", *args],
            env={"MILLRACE_HOME": str(tmp_path), "PATH": "", "HOME": str(tmp_path)},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.csv"
    path.write_text("id,v\n1,2\n2,3\n")
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.csv"
    path.write_text("id,v\n1,2\n2,2.5\n3,\n")
    return path


def test_the_platform_judges_by_the_table(client: Millrace, bad: Path) -> None:
    report = client.whatif.file("acme", "readings", bad)
    assert report["rows"] == {"read": 3, "passed": 1, "failed": 2}
    assert (report["revision"], report.get("judged_by"), report.get("file")) == (3, "table", "bad.csv")
    assert [fit["type"] for fit in report["columns"][0]["fits"]] == ["float", "decimal(2,1)", "string"]
    assert report["columns"][0]["nullable"]


@pytest.mark.parametrize("columns", [0, 1500])
def test_the_platform_judges_by_another_declaration(client: Millrace, bad: Path, columns: int) -> None:
    """However long it is: a long one is sent deflated."""
    more = [{"name": f"größe_{number}", "type": ["null", "string"], "default": None} for number in range(columns)]
    fields = [COLUMNS[0], {"name": "v", "type": ["null", "double"]}, *more]
    new = {"schema": {"type": "record", "name": "readings", "fields": fields}, "primary_key": ["id"]}
    report = client.whatif.file("acme", "readings", bad, declaration=new)
    assert (report["rows"]["failed"], report.get("judged_by")) == (0, "declaration")


def test_options_are_those_of_an_import(client: Millrace, tmp_path: Path) -> None:
    path = tmp_path / "odd.txt"
    path.write_bytes(gzip.compress(b"1;2\n2;3\n"))
    options = FileOptions(format="csv", header=False, delimiter=";")
    assert client.whatif.file("acme", "readings", path, options)["rows"]["passed"] == 2


def test_a_large_file_streams_through_and_stops_at_a_bound(client: Millrace, tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    path.write_bytes(b"id,v\n" + b"1234567,7654321\n" * 3_000_000)
    report = client.whatif.file("acme", "readings", path, rows=100_000)
    assert report["stopped_by"] == "rows"
    assert 100_000 <= report["rows"]["read"] < 200_000


@pytest.mark.parametrize(
    ("target", "declaration", "body", "status", "code"),
    [
        ("nowhere", None, b"id,v\n", 404, "no_table"),
        ("readings", None, b"id\n1\n", 422, "invalid"),
        ("readings", None, b"id\n" + b"1\n" * 3_000_000, 422, "invalid"),
        ("other", DECLARATION, b"id,v\n", 422, "invalid"),
        ("readings", {"schema": 7}, b"id,v\n", 422, "invalid"),
    ],
)
def test_refusals(client: Millrace, target: str, declaration: Any, body: bytes, status: int, code: str) -> None:
    with pytest.raises(Problem) as refused:
        client.whatif.stream("acme", target, io.BytesIO(body), declaration=declaration)
    assert (refused.value.status, refused.value.code) == (status, code)


@pytest.mark.parametrize("header", ["nonsense!", "e30", '{"schema"', "[1]", "eJwDAAAAAAE="])
def test_a_declaration_that_cannot_be_read_is_refused(client: Millrace, header: str) -> None:
    route = "/v1/tenants/acme/tables/readings/validate"
    answer = client.send("POST", route, content=b"id,v\n", headers={"Millrace-Declaration": header})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


def test_another_tenant_sees_nothing(server: str, good: Path) -> None:
    with Millrace(server, OTHER) as connection, pytest.raises(Problem) as refused:
        connection.whatif.file("acme", "readings", good, declaration=DECLARATION)
    assert (refused.value.status, refused.value.code) == (404, "no_tenant")


def test_exit_codes_say_whether_everything_passes(millrace: Run, good: Path, bad: Path) -> None:
    passed = millrace("validate", str(good), "--table", "acme/readings")
    assert (passed.returncode, passed.stderr) == (0, "")
    assert "2 rows read, 2 would pass, 0 would fail" in passed.stdout
    failed = millrace("validate", str(bad), "--table", "acme/readings")
    assert failed.returncode == 1
    assert "v is declared int; float, decimal(2,1) or string would take every value" in failed.stdout
    assert "line 3: 2.5" in failed.stdout
    assert millrace("validate", str(good), "--table", "acme/nowhere").returncode == 1
    assert millrace("validate", str(good), "--table", "nonsense").returncode == 2
    assert millrace("--home", "/nowhere", "validate", str(good), "--table", "acme/readings").returncode == 3


@pytest.mark.parametrize(
    "words", [(), ("--last", "3"), ("FILE",), ("FILE", "--last", "3", "--table", "a/b"), ("gone.csv", "--table", "a/b")]
)
def test_contradictions_are_usage_errors(millrace: Run, good: Path, words: tuple[str, ...]) -> None:
    ran = millrace("validate", *(str(good) if word == "FILE" else word for word in words))
    assert ran.returncode == 2, ran.stderr


def test_a_declaration_alone_needs_no_platform(millrace: Run, bad: Path, tmp_path: Path) -> None:
    (tmp_path / "client.json").unlink()
    new = tmp_path / "new.yaml"
    new.write_text(yaml.safe_dump(DECLARATION))
    ran = millrace("validate", str(bad), "--with", str(new), "--json")
    assert ran.returncode == 1, ran.stderr
    report = json.loads(ran.stdout)
    assert report["rows"] == {"read": 3, "passed": 1, "failed": 2}
    from_stdin = millrace("validate", "-", "--with", str(new), stdin="id,v\n1,2\n")
    assert from_stdin.returncode == 0, from_stdin.stderr
    two = tmp_path / "two.yaml"
    two.write_text(yaml.safe_dump_all([DECLARATION, {**DECLARATION, "table": "more"}]))
    assert millrace("validate", str(bad), "--with", str(two)).returncode == 1


def test_with_and_table_judge_by_the_new_declaration(millrace: Run, bad: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    fields = [COLUMNS[0], {"name": "v", "type": ["null", "double"]}]
    new.write_text(json.dumps({"schema": {"type": "record", "name": "readings", "fields": fields}}))
    ran = millrace("validate", str(bad), "--table", "acme/readings", "--with", str(new))
    assert ran.returncode == 0, ran.stderr
    assert "acme/readings (the declaration): 3 rows read, 3 would pass" in ran.stdout


def test_infer_writes_what_validate_and_apply_take(millrace: Run, bad: Path, tmp_path: Path) -> None:
    out = tmp_path / "table.yaml"
    ran = millrace("infer", str(bad), "--name", "readings", "--out", str(out))
    assert ran.returncode == 0, ran.stderr
    assert "Looked at 3 rows; the judge took 3 of all 3 rows." in ran.stderr
    assert parse_table(yaml.safe_load(out.read_text())).primary_key == ("id",)
    assert millrace("validate", str(bad), "--with", str(out)).returncode == 0
    assert millrace("validate", str(bad), "--with", str(out), "--table", "acme/readings").returncode == 0
    told = json.loads(millrace("infer", str(bad), "--json").stdout)
    assert told["declaration"]["table"] == "bad"
    assert told["judged"] == {"rows": 3, "rejected": 0, "whole_file": True}
    assert yaml.safe_load(millrace("infer", str(bad)).stdout) == told["declaration"]


def test_infer_refuses_with_a_sentence(millrace: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    ran = millrace("infer", str(empty))
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "empty.csv is empty." in ran.stderr
    assert millrace("infer", str(tmp_path / "gone.csv")).returncode == 2
    assert millrace("infer", str(empty), "--out", "table.txt").returncode == 2
