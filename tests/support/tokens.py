"""Tokens by REST, as an operator or a tenant's admin makes them."""

from typing import Any

from starlette.testclient import TestClient

from tests.support.whole_app import TOKEN


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def make(client: TestClient, name: str, by: str = TOKEN, **wanted: Any) -> str:
    made = client.post("/v1/tokens", json={"name": name, **wanted}, headers=bearer(by))
    assert made.status_code == 201, made.text
    return str(made.json()["token"])
