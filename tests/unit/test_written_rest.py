"""How values are written, declared over REST: refused in words, kept, shown, and changed without touching a row."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from millrace.declare.table import parse_table
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from tests.support.whole_app import TOKEN, whole_app

TABLE = "/v1/tenants/acme/tables/orders"
AUTH = {"Authorization": f"Bearer {TOKEN}"}
DATE = {"type": "int", "logicalType": "date"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with whole_app(tmp_path_factory.mktemp("written")) as (platform, client):
        platform.apply(DefineTenant("acme", agreement={}))
        yield client


def document(**words: Any) -> dict[str, Any]:
    fields = [{"name": "id", "type": "long"}, {"name": "day", "type": DATE, **words}]
    return {"schema": {"type": "record", "name": "orders", "fields": fields}, "primary_key": ["id"]}


def put(client: TestClient, given: dict[str, Any]) -> Any:
    return client.put(TABLE, json=given, headers=AUTH)


def test_a_format_that_cannot_be_meant_is_refused_with_a_proposal(client: TestClient) -> None:
    refused = put(client, document(format="dd.MM.YYYY"))
    assert refused.status_code == 422
    assert "at character 7, 'YYYY' means nothing" in refused.text
    assert "Did you mean 'dd.MM.yyyy'?" in refused.text
    refused = put(client, {**document(), "written": {"decimal_separator": ",", "thousands_separator": ","}})
    assert "are both ','" in refused.text


def test_a_format_is_kept_and_shown_and_changing_it_touches_no_row(client: TestClient) -> None:
    assert put(client, document()).status_code in (200, 201)
    changed = {**document(format="dd.MM.yyyy"), "written": {"null_texts": ["-"]}}
    told = client.post(f"{TABLE}/diff", json=changed, headers=AUTH).json()
    assert told["refusal"] is None
    assert told["changes"] == ['written.null_texts: null -> ["-"]', 'format of day: null -> "dd.MM.yyyy"']
    assert told["ddl"] == []
    assert put(client, changed).json()["revision"] == 2
    assert put(client, changed).json()["changed"] is False
    shown = client.get(TABLE, headers=AUTH).json()["declaration"]
    assert shown["written"] == {"null_texts": ["-"]}
    assert shown["schema"]["fields"][1]["format"] == "dd.MM.yyyy"


def named(*names: str) -> dict[str, Any]:
    fields = [{"name": "id", "type": "long"}, *({"name": name, "type": ["null", "string"]} for name in names)]
    return {"schema": {"type": "record", "name": "titles", "fields": fields}, "primary_key": ["id"]}


def test_a_name_that_readers_differ_about_is_refused_unless_the_table_has_it(tmp_path: Path) -> None:
    with whole_app(tmp_path) as (platform, client):
        platform.apply(DefineTenant("acme", agreement={}))
        place = "/v1/tenants/acme/tables/titles"
        refused = client.put(place, json=named("Order no."), headers=AUTH)
        assert (refused.status_code, refused.json()["code"]) == (422, "unsafe_name")
        assert "{name: order_no, header: 'Order no.', …}" in refused.json()["remedy"]
        told = client.post(f"{place}/diff", json=named("Order no."), headers=AUTH).json()
        assert "Order no." in told["refusal"]["message"]
        # A table from before this rule.
        platform.apply(DefineTable("acme", "titles", declaration=parse_table(named("Order no.")).to_dict()))
        assert client.put(place, json=named("Order no.", "more"), headers=AUTH).json()["revision"] == 2
        assert client.put(place, json=named("Order no.", "more", "a b"), headers=AUTH).status_code == 422
        elsewhere = {**named("a b"), "sinks": [{"kind": "webhook", "url": "https://example.com/in"}]}
        assert "unsafe_name" not in client.post(f"{place}/diff", json=elsewhere, headers=AUTH).text
