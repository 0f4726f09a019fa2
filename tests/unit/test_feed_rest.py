"""A change feed, declared over REST: kept, shown, switched off again, and refused where there can be none."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from millrace.cli.main import app
from millrace.model.ops.tenants import DefineTenant
from tests.support.whole_app import TOKEN, served_app, whole_app

TABLE = "/v1/tenants/acme/tables/orders"
AUTH = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with whole_app(tmp_path_factory.mktemp("feed")) as (platform, client):
        platform.apply(DefineTenant("acme", agreement={}))
        yield client


def document(column: str = "text", **words: Any) -> dict[str, Any]:
    fields = [{"name": "id", "type": "long"}, {"name": column, "type": ["null", "string"]}]
    return {"schema": {"type": "record", "name": "orders", "fields": fields}, "primary_key": ["id"], **words}


def put(client: TestClient, given: dict[str, Any]) -> Any:
    return client.put(TABLE, json=given, headers=AUTH)


def declared(client: TestClient) -> dict[str, Any]:
    shown: dict[str, Any] = client.get(TABLE, headers=AUTH).json()["declaration"]
    return shown


def test_a_feed_is_switched_on_and_off_by_revisions(client: TestClient) -> None:
    assert put(client, document()).status_code in (200, 201)
    assert "change_feed" not in declared(client)
    told = client.post(f"{TABLE}/diff", json=document(change_feed=True), headers=AUTH).json()
    assert (told["refusal"], told["changes"]) == (None, ["change_feed: null -> true"])
    assert put(client, document(change_feed=True)).json()["revision"] == 2
    assert declared(client)["change_feed"] is True
    assert put(client, document(change_feed=False)).json()["revision"] == 3
    assert "change_feed" not in declared(client)


@pytest.mark.parametrize("name", ["_change_type", "_Commit_Version", "_commit_timestamp"])
def test_a_column_of_the_feed_is_no_column_of_the_table(client: TestClient, name: str) -> None:
    refused = put(client, document(name, change_feed=True))
    assert refused.status_code == 422
    assert f"{name!r} has the name of a column of the change feed" in refused.text
    assert client.post(f"{TABLE}/diff", json=document(name), headers=AUTH).json()["refusal"] is None


def test_a_feed_needs_a_delta_sink(client: TestClient) -> None:
    elsewhere = document(change_feed=True, sinks=[{"kind": "webhook", "url": "https://example.com/in"}])
    told = client.post(f"{TABLE}/diff", json=elsewhere, headers=AUTH).json()
    assert "no Delta sink" in told["refusal"]["message"]


def test_the_command_line_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served_app(tmp_path / "home") as server:
        monkeypatch.setenv("MILLRACE_URL", server.url)
        monkeypatch.setenv("MILLRACE_TOKEN", TOKEN)
        folder, shown = tmp_path / "acme", []
        folder.mkdir()
        (folder / "agreement.yaml").write_text("client: acme\n")
        for is_fed in (False, True):
            (folder / "orders.yaml").write_text(json.dumps(document(change_feed=is_fed)))
            assert CliRunner().invoke(app, ["apply", "-f", str(folder)]).exit_code == 0
            shown.append("It has a change feed." in CliRunner().invoke(app, ["tables", "acme/orders"]).stdout)
    assert shown == [False, True]
