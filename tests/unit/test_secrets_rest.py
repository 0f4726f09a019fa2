"""Whose a secret is, where an attacker meets it: REST, the command line, a sink's check, a delivery. A PostgreSQL of the
attacker's remembers every password that it is sent."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from millrace.credentials.secrets import ForeignSecret
from millrace.declare.table import parse_table
from millrace.deliver.opened import Opened
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from millrace.model.sinks import SinkTarget
from tests.support.fake_postgres import FakePostgres, fake_postgres
from tests.support.small_server import SmallServer
from tests.support.whole_app import TOKEN, served_app

SCHEMA = {"type": "record", "name": "notes", "fields": [{"name": "id", "type": "long"}]}
VICTIMS = "env:MILLRACE_SECRET_VICTIM_DB"
OWN = "env:MILLRACE_SECRET_EVE_DB"
SHARED, SHARED_WITH_SOME = "env:MILLRACE_SECRET_COMMON", "env:MILLRACE_SECRET_SOME"
OPERATORS = "env:MILLRACE_SECRET_EVE_LAKE"


@pytest.fixture
def postgres() -> Iterator[FakePostgres]:
    with fake_postgres() as listening:
        yield listening


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallServer]:
    for reference in (VICTIMS, OWN, SHARED, SHARED_WITH_SOME, OPERATORS):
        monkeypatch.setenv(reference.removeprefix("env:"), f"password of {reference}")
    monkeypatch.setenv("MILLRACE_SECRET_FOLDER", str(tmp_path / "secrets"))
    for tenant in ("eve", "victim"):
        (tmp_path / "secrets" / tenant).mkdir(parents=True)
        (tmp_path / "secrets" / tenant / "db").write_text(f"password of file:{tenant}/db\n")
    shared = {SHARED: ["*"], SHARED_WITH_SOME: ["victim"]}
    monkeypatch.setenv("MILLRACE_SECRETS__SHARED", json.dumps(shared))
    monkeypatch.setenv("MILLRACE_LAKE__ACCESS_KEY", OPERATORS)
    with served_app(tmp_path / "home", "127.0.0.0/8") as running:
        for tenant in ("eve", "victim", "eve_b"):
            running.apply(DefineTenant(tenant, agreement={}))
        yield running


def sink(postgres: FakePostgres, reference: str) -> dict[str, Any]:
    place = {"host": "127.0.0.1", "port": postgres.port, "database": "d", "user": "u", "sslmode": "disable"}
    return {"kind": "postgres", "name": "warehouse", **place, "password": reference}


def table(postgres: FakePostgres, reference: str) -> dict[str, Any]:
    return {"schema": SCHEMA, "primary_key": ["id"], "sinks": ["delta", sink(postgres, reference)]}


def ask(server: SmallServer, method: str, path: str, body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx2.request(method, f"{server.url}/v1{path}", json=body, headers=headers, timeout=30)


def refusals(server: SmallServer) -> list[tuple[str, str]]:
    """Of secrets, in the audit log: whose they are and what was named."""
    entries = ask(server, "GET", "/audit").json()["items"]
    return [
        (one["tenant"], one["subject"])
        for one in entries
        if one["action"] == "use of a secret" and one["outcome"] == "refused"
    ]


FOREIGN = (
    VICTIMS,
    "file:victim/db",
    "env:MILLRACE_SECRET_EVE",
    "env:MILLRACE_SECRET_DB",
    "env:MILLRACE_SECRET_eve_DB",
    "env:MILLRACE_SECRET_EVE__B_DB",
    "env:MILLRACE_SECRET_FOLDER",
    "env:HOME",
    "file:eve",
    "file:EVE/db",
    "k8s:millrace-tenant-victim/db/password",
    "vault:/millrace/victim/db#password",
    SHARED_WITH_SOME,
    OPERATORS,
)


def test_a_secret_that_is_not_the_tenant_s_is_refused_before_anyone_is_asked(
    server: SmallServer, postgres: FakePostgres
) -> None:
    for reference in FOREIGN:
        declared = ask(server, "PUT", "/tenants/eve/tables/notes", table(postgres, reference))
        unchecked = ask(server, "PUT", "/tenants/eve/tables/notes?check=false", table(postgres, reference))
        for answer in (declared, unchecked):
            assert (answer.status_code, answer.json()["code"]) == (422, "foreign_secret"), reference
            assert "env:MILLRACE_SECRET_EVE_…" in answer.json()["remedy"]
            assert "MILLRACE_SECRETS__SHARED" in answer.json()["remedy"]
        tried = ask(server, "POST", "/tenants/eve/tables/notes/diff", table(postgres, reference)).json()
        assert tried["refusal"]["code"] == "foreign_secret", reference
    assert (postgres.connections, postgres.passwords) == (0, [])
    assert refusals(server) == [("eve", f"eve/notes {reference}") for reference in FOREIGN for _ in range(3)]


@pytest.mark.parametrize("reference", [OWN, "file:eve/db", SHARED])
def test_a_tenant_s_own_and_shared_secrets_reach_its_sink(
    server: SmallServer, postgres: FakePostgres, reference: str
) -> None:
    answer = ask(server, "PUT", "/tenants/eve/tables/notes", table(postgres, reference))
    assert answer.json()["code"] == "sink_check", answer.text
    assert set(postgres.passwords) == {f"password of {reference}"}
    assert refusals(server) == []


def test_a_dry_run_of_the_command_line_sends_no_foreign_password(
    server: SmallServer, postgres: FakePostgres, tmp_path: Path
) -> None:
    document = {"tenant": "eve", **table(postgres, VICTIMS)}
    (tmp_path / "notes.json").write_text(json.dumps(document))
    home = str(tmp_path / "home")
    ran = subprocess.run(
        [sys.executable, "-m", "millrace.cli.main", "apply", "--dry-run", "-f", str(tmp_path / "notes.json")],
        env={"MILLRACE_HOME": home, "HOME": home, "PATH": "", "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode != 0, ran.stdout
    assert "MILLRACE_SECRETS__SHARED" in ran.stdout + ran.stderr
    assert postgres.passwords == []
    assert refusals(server) == [("eve", f"eve/notes {VICTIMS}")]


def test_an_agreement_s_sinks_are_refused_like_a_table_s(server: SmallServer, postgres: FakePostgres) -> None:
    agreement = {"sinks": [sink(postgres, VICTIMS)]}
    assert ask(server, "PUT", "/tenants/eve", agreement).json()["code"] == "foreign_secret"
    tried = ask(server, "POST", "/tenants/eve/diff", agreement).json()
    assert tried["refusal"]["code"] == "foreign_secret"
    assert refusals(server) == [("eve", f"eve {VICTIMS}")] * 2
    assert ask(server, "PUT", "/tenants/eve", {"sinks": [sink(postgres, OWN)]}).status_code == 200


def test_what_was_declared_before_is_refused_where_it_is_used(server: SmallServer, postgres: FakePostgres) -> None:
    """A definition of an older release, or a secret that is shared no longer."""
    stored = parse_table(table(postgres, VICTIMS)).to_dict()
    server.apply(DefineTable("eve", "notes", declaration=stored))
    answer = ask(server, "POST", "/tenants/eve/tables/notes/sinks/warehouse/check")
    assert (answer.status_code, answer.json()["code"]) == (422, "foreign_secret")
    assert postgres.passwords == []
    assert refusals(server) == [("eve", f"eve/notes/warehouse {VICTIMS}")]


def test_a_worker_neither_reads_a_foreign_secret_nor_lends_another_s_connection(
    server: SmallServer, postgres: FakePostgres
) -> None:
    context, opened = server.platform.sink_context, Opened(most=4)
    settings = {name: value for name, value in sink(postgres, VICTIMS).items() if name not in ("kind", "name")}
    target = SinkTarget("warehouse", "postgres", True, settings)
    opened.get(target, context.for_tenant("victim"))
    with pytest.raises(ForeignSecret):
        opened.get(target, context.for_tenant("eve"))
    with pytest.raises(RuntimeError, match="whose secrets"):
        opened.get(target, context)
