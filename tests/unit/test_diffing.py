"""What a declaration would change: the real route, client and commands, on a server without Kafka and Spark."""

import copy
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
from fastapi import FastAPI
from sqlalchemy import insert

from millrace.api.problems import add_problems
from millrace.api.routes import agreements, declarations, diffing
from millrace.auth.quotas import Quotas
from millrace.auth.tokens import Tokens
from millrace.client import Millrace, Problem
from millrace.declare.table import parse_table
from millrace.exchange.mailboxes import open_exchange
from millrace.model.table import Definition, define
from millrace.settings import Settings
from millrace.sink.context import SinkContext
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from tests.support.waiting import wait_until

ADMIN, OTHER = "mr_admin", "mr_other"
COLUMNS: list[dict[str, Any]] = [{"name": "id", "type": "int"}, {"name": "v", "type": "int"}]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def declaration(*more: dict[str, Any], columns: list[dict[str, Any]] | None = None, **settings: Any) -> dict[str, Any]:
    fields = [*(copy.deepcopy(COLUMNS) if columns is None else columns), *more]
    return {"schema": {"type": "record", "name": "readings", "fields": fields}, "primary_key": ["id"], **settings}


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
    for routes in (agreements, declarations, diffing):
        app.include_router(routes.router)
    exchange = open_exchange(root)
    app.state.services = SimpleNamespace(
        store=store,
        tokens=tokens,
        exchange=exchange,
        sink_context=SinkContext(exchange.places),
        op_log=None,
        quotas=Quotas(store),
        settings=Settings(home=root),
    )
    running = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", loop="asyncio", lifespan="off"))
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
    """Revision 1 had a column that revision 2 dropped."""
    first = define("acme", parse_table(declaration({"name": "w", "type": "int", "default": 0})), 1)
    second = define("acme", parse_table(declaration()), 2, previous=first.fingerprint)
    row = {
        "tenant": "acme", "name": "readings", "folded_name": "readings", "definition": second.to_json().decode(),
        "last_version": 0, "defined_us": 0, "floor": 0, "open_imports": 0, "dropped_us": None, "is_purged": False,
    }  # fmt: skip
    tenant = {"name": "acme", "folded_name": "acme", "partition": 0, "revision": 4}
    with store.write() as connection:
        connection.execute(
            insert(t.tenants).values(**tenant, agreement={"client": "acme", "data_retention_period_days": 7})
        )
        connection.execute(insert(t.tables).values(row))
        for definition in (first, second):
            connection.execute(insert(t.revisions).values(_revision(definition)))


def _revision(definition: Definition) -> dict[str, Any]:
    return {
        "tenant": "acme", "table_name": "readings", "revision": definition.revision, "generation": 1, "defined_us": 0,
        "fingerprint": definition.fingerprint, "definition": definition.to_json().decode(),
    }  # fmt: skip


@pytest.fixture
def client(server: str) -> Iterator[Millrace]:
    with Millrace(server, ADMIN) as connection:
        yield connection


@pytest.fixture
def millrace(server: str, tmp_path: Path) -> Run:
    (tmp_path / "client.json").write_text(json.dumps({"url": server, "token": ADMIN}))

    def run(*args: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "millrace.cli.main", *args],
            env={"MILLRACE_HOME": str(tmp_path), "PATH": "", "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_the_same_declaration_changes_nothing(client: Millrace) -> None:
    found = client.tables.diff("acme", "readings", declaration())
    assert found == {"new": False, "revision": 2, "changes": [], "ddl": [], "refusal": None, "warnings": []}


def test_changes_of_columns_and_settings_are_told_with_what_the_sink_does(client: Millrace) -> None:
    found = client.tables.diff(
        "acme", "readings", declaration({"name": "x", "type": "int", "default": 7}, publish="atomic")
    )
    assert found["changes"] == ["add column x int, default 7", 'publish: "rolling" -> "atomic"']
    assert found["ddl"] == ["delta: add column x int32, existing rows get 7 (rewrites 0 files)"]
    assert found["refusal"] is None


def test_a_refusal_is_part_of_the_answer(client: Millrace) -> None:
    found = client.tables.diff("acme", "readings", declaration({"name": "x", "type": "int"}))
    assert found["refusal"] is not None
    assert found["refusal"]["code"] == "incompatible"
    assert "the added column 'x' has no default" in found["refusal"]["message"]
    broken = client.tables.diff("acme", "readings", {"schema": 1})
    assert broken["refusal"] is not None
    assert broken["refusal"]["code"] == "invalid"


def test_a_transitive_policy_looks_at_the_stored_history(client: Millrace) -> None:
    again = {"name": "w", "type": "string", "default": ""}
    assert client.tables.diff("acme", "readings", declaration(again))["refusal"] is None
    found = client.tables.diff("acme", "readings", declaration(again, compatibility="backward_transitive"))
    assert found["refusal"] is not None
    assert "revision 1: column 'w' would change from int to string" in found["refusal"]["message"]


def test_a_new_generation_may_change_anything(client: Millrace) -> None:
    narrowed = declaration(columns=[{"name": "id", "type": "string"}])
    refused = client.tables.diff("acme", "readings", narrowed)
    assert refused["refusal"] is not None
    assert refused["refusal"]["code"] == "needs_generation"
    found = client.tables.diff("acme", "readings", narrowed, new_generation=True)
    assert found["refusal"] is None
    assert found["changes"][0] == "begin generation 2, without the rows of generation 1"


def test_what_is_not_there_is_new(client: Millrace) -> None:
    other = declaration()
    other["schema"]["name"] = "others"
    assert client.tables.diff("acme", "others", other)["new"]
    assert client.tenants.diff("nobody", {})["new"]


def test_another_tenants_table_does_not_exist(server: str) -> None:
    with Millrace(server, OTHER) as connection, pytest.raises(Problem) as caught:
        connection.tables.diff("acme", "readings", declaration())
    assert caught.value.status == 404


def written(folder: Path, *tables: dict[str, Any], agreement: dict[str, Any] | None = None) -> str:
    (folder / "declared").mkdir()
    documents = {f"t{at}": table for at, table in enumerate(tables)}
    for name, document in {
        **documents,
        "agreement": agreement or {"client": "acme", "data_retention_period_days": 7},
    }.items():
        (folder / "declared" / f"{name}.json").write_text(json.dumps(document))
    return str(folder / "declared")


@pytest.mark.parametrize("command", [("diff",), ("apply", "--dry-run")])
def test_commands_say_what_would_change_and_exit_0(millrace: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    new = declaration()
    new["schema"]["name"] = "others"
    widened = declaration(columns=[{"name": "id", "type": "int"}, {"name": "v", "type": "long"}])
    folder = written(tmp_path, widened, new, agreement={"client": "acme", "data_retention_period_days": 8})
    done = millrace(*command, "-f", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "tenant acme changed",
        "  data_retention_period_days: 7 -> 8",
        "table acme/readings changed",
        "  change column v from int to long",
        "  delta: change column v from int32 to int64 (rewrites 0 files)",
        "table acme/others new",
    ]


def test_commands_exit_1_when_something_would_be_refused(millrace: Run, tmp_path: Path) -> None:
    folder = written(tmp_path, declaration({"name": "x", "type": "int"}))
    done = millrace("diff", "-f", folder)
    assert done.returncode == 1
    assert done.stdout.splitlines()[:3] == [
        "tenant acme unchanged",
        "table acme/readings incompatible",
        "  backward: the added column 'x' has no default.",
    ]
    told = [json.loads(line) for line in millrace("diff", "-f", folder, "--json").stdout.splitlines()]
    assert [one["outcome"] for one in told] == ["unchanged", "incompatible"]
    assert told[1]["refusal"]["code"] == "incompatible"


def test_a_dry_run_of_a_new_generation(millrace: Run, tmp_path: Path) -> None:
    folder = written(tmp_path, declaration(columns=[{"name": "id", "type": "string"}]))
    assert millrace("diff", "-f", folder).returncode == 1
    done = millrace("apply", "--dry-run", "--new-generation", "-f", folder)
    assert done.returncode == 0
    assert "begin generation 2" in done.stdout


def test_warnings_are_shown_and_refused_under_strict(millrace: Run, tmp_path: Path) -> None:
    folder = written(tmp_path, agreement={"client": "acme", "resources": {"limits": {"cpu": "1Gi"}}})
    done = millrace("diff", "-f", folder)
    assert done.returncode == 0
    assert "warning: resources.limits.cpu is 1Gi: Gi is a unit of memory. It is read as 1. Likely 1." in done.stdout
    strict = millrace("diff", "-f", folder, "--strict")
    assert strict.returncode == 1
    assert strict.stdout.splitlines()[0] == "tenant acme refused"
    refused = millrace("apply", "-f", folder, "--strict")
    assert (refused.returncode, refused.stdout) == (1, ""), "nothing is applied when something is refused"
    assert "acme: resources.limits.cpu is 1Gi" in refused.stderr


def test_what_runs_is_exported_as_documents_that_change_nothing(millrace: Run, tmp_path: Path) -> None:
    out = tmp_path / "exported"
    assert millrace("export", "acme", "--out", str(out)).returncode == 0
    assert sorted(path.name for path in out.iterdir()) == ["agreement.yaml", "table-readings.yaml"]
    assert millrace("diff", "-f", str(out)).stdout.splitlines() == [
        "tenant acme unchanged",
        "table acme/readings unchanged",
    ]
    in_one = tmp_path / "all.yaml"
    in_one.write_text(millrace("export", "acme").stdout)
    assert "unchanged" in millrace("diff", "-f", str(in_one)).stdout


def test_schemas_are_published_without_a_token(millrace: Run, server: str) -> None:
    with Millrace(server, "nobody") as connection:
        published = connection.json("GET", "/v1/schemas/agreement")
    assert json.loads(millrace("schema", "agreement").stdout) == published
    assert "schedule" in published["properties"]
    assert millrace("schema", "spaceship").returncode == 1


def test_a_tenant_is_not_deleted_without_its_name(millrace: Run, client: Millrace) -> None:
    assert millrace("tenant", "delete", "acme").returncode == 1
    with pytest.raises(Problem, match="not confirmed"):
        client.json("DELETE", "/v1/tenants/acme", params={"confirm": "acne"})
