"""Every role against every endpoint, and what strangers learn: at the whole application's surface."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
from fastapi import APIRouter, FastAPI
from httpx2 import Response
from starlette.testclient import TestClient

from millrace.api.deps import guarded_router
from millrace.api.endpoints import endpoints, page
from millrace.api.problems import add_problems
from millrace.api.routes import tokens as token_routes
from millrace.declare.table import parse_table
from millrace.model.names import new_id
from millrace.model.ops.imports import BeginImport
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from millrace.model.roles import LIMITABLE, OPERATOR, ROLES, may
from tests.support.platform import record
from tests.support.whole_app import TOKEN, AppPlatform, whole_app

# Names of what is not there: what is allowed ends in "missing" or "invalid" instead of doing something.
NOWHERE = {
    "table": "nowhere", "import_id": "imp_" + "0" * 26, "name": "nothing", "name:path": "nothing", "sink": "none",
    "run": "none", "op_id": "op_none",
}  # fmt: skip
ACCESS = endpoints()
Tokens = dict[str, str]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AppPlatform, TestClient]]:
    with whole_app(tmp_path_factory.mktemp("access")) as (platform, client):
        for tenant in ("acme", "acme2", "other"):
            platform.apply(DefineTenant(tenant, agreement={}))
        declaration = parse_table(record("notes", ("id", "long"), key=("id",))).to_dict()
        platform.apply(DefineTable("acme", "notes", declaration=declaration))
        platform.apply(DefineTable("other", "notes", declaration=declaration))
        yield platform, client


@pytest.fixture(scope="module")
def client(scene: tuple[AppPlatform, TestClient]) -> TestClient:
    return scene[1]


@pytest.fixture(scope="module")
def platform(scene: tuple[AppPlatform, TestClient]) -> AppPlatform:
    return scene[0]


@pytest.fixture(scope="module")
def tokens(platform: AppPlatform) -> Tokens:
    """A token of each role of tenant acme, the operator's own, and one of each limitable role limited to `notes`."""
    made = {role: platform.tokens.make(role, "acme", role) for role in ROLES if role != OPERATOR}
    limited = {f"{r}:notes": platform.tokens.make(f"{r}-notes", "acme", r, tables=["notes"]) for r in LIMITABLE}
    return {OPERATOR: TOKEN, **made, **limited}


def ask(client: TestClient, endpoint: str, token: str | None, tenant: str, **names: str) -> Response:
    method, _, path = endpoint.partition(" ")
    filled = {**NOWHERE, "tenant": tenant, "tenant_id": tenant, **names}
    url = re.sub(r"{([^}]*)}", lambda part: filled[part[1]], path)
    # Follows for ever when it is allowed: there the page says the same.
    url = url.replace("/events/stream", "/events?limit=1") if token else url
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return client.request(method, url, headers=headers, json={} if method in ("PUT", "POST", "PATCH") else None)


def test_the_page_of_endpoints_is_what_they_declare() -> None:
    assert Path("docs/endpoints.md").read_text() == page(), "run `make reference`"


def undeclared() -> APIRouter:
    router = guarded_router(tags=[])

    @router.get("/v1/forgotten")
    def forgotten() -> dict[str, str]:
        return {}

    return router


def test_the_server_refuses_to_start_with_an_endpoint_that_declares_no_access(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_routes, "router", undeclared())
    with pytest.raises(TypeError, match="GET /v1/forgotten declares no access"):
        endpoints()


def test_nobody_may_call_an_endpoint_that_declares_no_access(platform: AppPlatform) -> None:
    app = FastAPI()
    add_problems(app)
    app.state.services = platform
    app.include_router(undeclared())
    with TestClient(app) as client:
        assert client.get("/v1/forgotten", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 404
        assert client.get("/v1/forgotten").status_code == 401


@pytest.mark.parametrize("endpoint", [name for name in ACCESS if not name.startswith("WS")])
def test_each_endpoint_is_open_to_the_roles_it_declares_and_to_no_other(
    client: TestClient, tokens: Tokens, endpoint: str
) -> None:
    access = ACCESS[endpoint]
    if access.least is None:
        assert ask(client, endpoint, None, "acme").status_code not in (401, 403)
        return
    assert ask(client, endpoint, None, "acme").status_code == 401
    assert ask(client, endpoint, "mr_guessed", "acme").status_code == 401
    for held, token in tokens.items():
        role, _, limit = held.partition(":")
        allowed = may(role, access.least) and (not limit or access.by_table)
        status = ask(client, endpoint, token, "acme").status_code
        assert (status != 403) == allowed, f"{held} at {endpoint}: {status}"
        assert status != 401
        if held in ("viewer", "admin", "writer:notes"):
            _looks_missing(client, endpoint, token)


def _looks_missing(client: TestClient, endpoint: str, token: str) -> None:
    """Another's tenant, one whose name begins with ours, and none at all: the same answer."""
    if "{tenant" not in endpoint:
        return
    answers = [ask(client, endpoint, token, tenant) for tenant in ("other", "acme2", "nobody")]
    assert {answer.status_code for answer in answers} == {404}, endpoint
    if not endpoint.startswith("HEAD"):
        told = {
            answer.text.replace(name, "X") for answer, name in zip(answers, ("other", "acme2", "nobody"), strict=True)
        }
        assert len(told) == 1
        assert json.loads(answers[0].text)["code"] == "no_tenant"


def test_a_stream_is_opened_by_writers_of_the_tenant_alone(client: TestClient, tokens: Tokens) -> None:
    def opened(token: str, tenant: str, table: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        status = 0
        try:
            with client.websocket_connect(f"/v1/tenants/{tenant}/tables/{table}/stream", headers=headers):
                status = 101
        except CancelledError:
            # The test client cancels an endpoint that has not noticed the close yet.
            return status
        except Exception as refused:
            return int(getattr(refused, "status_code", 0))
        return status

    assert opened(tokens["reader"], "acme", "notes") == 403
    assert opened(tokens["writer"], "other", "notes") == 404
    assert opened(tokens["writer:notes"], "acme", "elsewhere") == 404
    assert opened(tokens["writer"], "acme", "notes") == 101


def test_a_token_limited_to_tables_sees_nothing_of_the_others(
    platform: AppPlatform, client: TestClient, tokens: Tokens
) -> None:
    declaration = parse_table(record("ledger", ("id", "long"), key=("id",))).to_dict()
    platform.apply(DefineTable("acme", "ledger", declaration=declaration))
    begun = platform.apply(BeginImport("acme", "ledger", id=new_id("imp"))).result.import_id
    seen = platform.apply(BeginImport("acme", "notes", id=new_id("imp"))).result.import_id
    headers = {"Authorization": f"Bearer {tokens['viewer:notes']}"}
    tables = client.get("/v1/tenants/acme/tables", headers=headers).json()["items"]
    assert [table["table"] for table in tables] == ["notes"]
    assert client.get("/v1/tenants/acme/tables/ledger", headers=headers).json()["code"] == "no_table"
    assert client.get(f"/v1/imports/{begun}", headers=headers).json()["code"] == "no_import"
    assert [one["id"] for one in client.get("/v1/imports", headers=headers).json()["items"]] == [seen]
