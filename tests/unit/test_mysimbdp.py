"""Seed 002's four documents, unchanged, over REST: what they do with and without MILLRACE_MYSIMBDP."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from millrace.embed.default_app import SAMPLE, install_default_app
from tests.support.whole_app import TOKEN, AppPlatform, whole_app

EXAMPLES = Path(__file__).parents[2] / "examples"
AUTH = {"Authorization": f"Bearer {TOKEN}"}
TABLES = {"client_a": "analytics", "client_b": "product_reviews"}


@pytest.fixture
def native(tmp_path: Path) -> Iterator[tuple[AppPlatform, TestClient]]:
    with whole_app(tmp_path) as both:
        yield both


@pytest.fixture
def mysimbdp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[AppPlatform, TestClient]]:
    monkeypatch.setenv("MILLRACE_MYSIMBDP", "true")
    with whole_app(tmp_path) as both:
        yield both


def apply(client: TestClient, tenant: str) -> dict[str, list[str]]:
    """The fields of all warnings, of the agreement and of the table."""

    def put(path: str, name: str, **params: Any) -> list[str]:
        document = json.loads((EXAMPLES / tenant / f"{name}.json").read_text())
        answer = client.put(path, json=document, headers=AUTH, params=params)
        assert answer.status_code == 200, answer.text
        return [warning["field"] for warning in answer.json()["warnings"]]

    return {
        "agreement": put(f"/v1/tenants/{tenant}", "service_agreement"),
        "table": put(f"/v1/tenants/{tenant}/tables/{TABLES[tenant]}", "data_file_configuration", check=False),
    }


def test_each_field_that_does_nothing_is_told(native: tuple[AppPlatform, TestClient]) -> None:
    _, client = native
    told = {tenant: apply(client, tenant) for tenant in TABLES}
    assert told["client_a"] == {"agreement": ["schedule", "resources"], "table": ["key_space"]}
    assert told["client_b"]["agreement"] == ["resources.limits.cpu", "schedule", "resources"]
    assert told["client_b"]["table"] == ["schema.review_date.logicalType", "key_space"]
    answer = client.put("/v1/tenants/x", json={"client": "x", "schedule": "@hourly"}, headers=AUTH).json()
    [warning] = answer["warnings"]
    assert "app:" in warning["likely"]
    assert "MILLRACE_MYSIMBDP=true" in warning["likely"]
    assert "staging directory" in warning["message"]


def test_with_the_setting_they_all_have_their_effect(mysimbdp: tuple[AppPlatform, TestClient]) -> None:
    platform, client = mysimbdp
    told = {tenant: apply(client, tenant) for tenant in TABLES}
    assert told["client_a"] == {"agreement": [], "table": []}
    assert told["client_b"] == {"agreement": ["resources.limits.cpu"], "table": ["schema.review_date.logicalType"]}
    for tenant, table in TABLES.items():
        shown = client.get(f"/v1/tenants/{tenant}/tables/{table}", headers=AUTH).json()
        assert [sink["name"] for sink in shown["declaration"]["targets"]] == ["coredms"]
        answer = client.post(f"/upload-file/{tenant}", files={"file": ("a.csv", b"x\n1\n")}, headers=AUTH)
        assert (answer.status_code, answer.json()["state"]) == (202, "staged")
        assert [one["file"] for one in client.get(f"/tenant/{tenant}", headers=AUTH).json()["in"]] == ["a.csv"]
        assert (platform.exchange.app_folders(tenant).inbox / "a.csv").read_bytes() == b"x\n1\n"
    apps = {item["tenant"]: item["agreement"] for item in client.get("/v1/apps", headers=AUTH).json()["items"]}
    assert apps["client_b"]["app"]["command"] == ["./pass_through.sh"]
    assert apps["client_b"]["resources"]["limits"]["cpu"] == "1"
    assert client.get("/v1/tenants/client_b/app", headers=AUTH).json()["schedule"] == "*/1 * * * *"
    assert client.post("/v1/tenants/client_b/app/run", headers=AUTH).status_code == 202
    # The agreement itself stays as it was sent.
    assert "app" not in client.get("/v1/tenants/client_b", headers=AUTH).json()["agreement"]


def test_a_table_and_an_agreement_that_name_sinks_keep_them(mysimbdp: tuple[AppPlatform, TestClient]) -> None:
    _, client = mysimbdp
    document = json.loads((EXAMPLES / "client_a" / "data_file_configuration.json").read_text())
    client.put("/v1/tenants/client_a", json={"sinks": ["delta"]}, headers=AUTH)
    for more in ({}, {"sinks": ["delta"]}):
        answer = client.put(
            "/v1/tenants/client_a/tables/analytics", json={**document, **more}, headers=AUTH, params={"check": False}
        )
        assert answer.status_code == 200, answer.text
        shown = client.get("/v1/tenants/client_a/tables/analytics", headers=AUTH).json()
        assert [sink["name"] for sink in shown["declaration"]["targets"]] == ["delta"]


@pytest.mark.parametrize("cpu", ["500Mi", "-1", "5000", "1e9"])
def test_absurd_amounts_are_refused_with_a_remedy(native: tuple[AppPlatform, TestClient], cpu: str) -> None:
    _, client = native
    document = {"client": "acme", "resources": {"limits": {"cpu": cpu}}}
    answer = client.put("/v1/tenants/acme", json=document, headers=AUTH)
    assert answer.status_code in (400, 422), answer.text
    assert f"resources.limits.cpu is {cpu}" in answer.text.replace("'", "")
    assert answer.json()["remedy"]


def test_the_sample_app_is_installed_unless_the_operator_has_put_another_one_there(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    install_default_app(programs)
    place = programs / "pass_through.sh"
    assert place.read_bytes() == SAMPLE.read_bytes()
    assert os.access(place, os.X_OK)
    place.write_text("mine")
    install_default_app(programs)
    assert place.read_text() == "mine"
