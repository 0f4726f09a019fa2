"""Fuzzed names and hostile requests against the whole application: none gets through, none leaves anything on the disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from millrace.declare.table import parse_table
from millrace.exchange.home import Home
from millrace.model.errors import Invalid
from millrace.model.names import checked_name, checked_span
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from tests.support.hostile import NAME_RULE, Attempt, attempts, got_through, in_path, names, paths_below
from tests.support.platform import record
from tests.support.whole_app import TOKEN, AppPlatform, whole_app

FUZZED, ASKED = 10_000, 150


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AppPlatform, TestClient]]:
    with whole_app(tmp_path_factory.mktemp("hostile") / "home") as (platform, client):
        for tenant in ("acme", "other"):
            platform.apply(DefineTenant(tenant, agreement={}))
            declaration = parse_table(record("notes", ("id", "long"), key=("id",))).to_dict()
            platform.apply(DefineTable(tenant, "notes", declaration=declaration))
        yield platform, client


def test_of_ten_thousand_fuzzed_names_none_leads_out_of_its_place() -> None:
    home = Home(Path("/millrace-home"))
    passed = 0
    for name in names(FUZZED):
        try:
            tenant = checked_name("tenant", name)
        except Invalid:
            assert not NAME_RULE.fullmatch(name)
            continue
        passed += 1
        assert NAME_RULE.fullmatch(tenant)
        for path in (home.table(tenant, tenant), home.table_errors(tenant, tenant), home.source(tenant)):
            assert str(path.resolve()) == str(path), name
            assert path.is_relative_to(home.root)
    assert 0 < passed < FUZZED, "some are names, or the rule was not tried"


def test_fuzzed_names_of_spans_are_refused_or_plain() -> None:
    for name in names(2000, seed=2):
        try:
            span = checked_span(name)
        except Invalid:
            continue
        assert ".." not in span.split("/")
        assert span.isascii()
        assert span.isprintable()


def test_fuzzed_names_make_nothing_at_the_surface(scene: tuple[AppPlatform, TestClient]) -> None:
    platform, client = scene
    headers = {"Authorization": f"Bearer {TOKEN}"}
    before = paths_below(platform.home.root.parent)
    for name in (one for one in names(ASKED, seed=3) if not NAME_RULE.fullmatch(one)):
        part = in_path(name)
        for method, path in (
            ("PUT", f"/v1/tenants/{part}"), ("PUT", f"/v1/tenants/acme/tables/{part}"), ("GET", f"/tenant/{part}"),
            ("POST", f"/v1/tenants/{part}/erase"),
        ):  # fmt: skip
            answer = client.request(method, path, headers=headers, json={"client": name, "table": name})
            assert 400 <= answer.status_code < 500, f"{method} {path}: {answer.status_code}"
    assert paths_below(platform.home.root.parent) == before


@pytest.mark.parametrize("attempt", attempts(), ids=lambda attempt: attempt.label[:60])
def test_hostile_requests_are_refused(scene: tuple[AppPlatform, TestClient], attempt: Attempt) -> None:
    platform, client = scene
    token = _admin(platform)
    before = paths_below(platform.home.root.parent)
    files = {"file": (attempt.form["name"], b"id\n1\n")} if attempt.form else None
    data = {"table": "nowhere"} if attempt.form else None
    headers = {"Authorization": f"Bearer {token}"}
    answer = client.request(attempt.method, attempt.path, headers=headers, json=attempt.body, files=files, data=data)
    assert not got_through(attempt, answer.status_code, answer.text), f"{answer.status_code} {answer.text[:300]}"
    assert paths_below(platform.home.root.parent) == before


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (f"/v1/events?after={1 << 63}", {}),
        ("/v1/events/stream", {"Last-Event-ID": str(1 << 63)}),
        (f"/v1/audit?after={1 << 63}", {}),
    ],
)
def test_numbers_that_the_store_cannot_hold_are_refused(
    scene: tuple[AppPlatform, TestClient], path: str, headers: dict[str, str]
) -> None:
    answer = scene[1].get(path, headers={"Authorization": f"Bearer {TOKEN}", **headers})
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("spans/curl", '{"lease_seconds": 60}'),
        ("spans/open/abort", '{"reason": "x"}'),
        ("subscriptions/hook/rotate", '{"overlap_seconds": 0}'),
    ],
)
def test_a_body_that_is_not_sent_as_json_is_not_ignored(
    scene: tuple[AppPlatform, TestClient], path: str, said: str
) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/x-www-form-urlencoded"}
    answer = scene[1].post(f"/v1/tenants/acme/{path}", headers=headers, content=said)
    assert answer.status_code == 422, answer.text
    assert "Content-Type: application/json" in answer.json()["detail"]


def test_a_body_that_may_be_left_out_may_be_null(scene: tuple[AppPlatform, TestClient]) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    for path, status in (("spans/null", 201), ("spans/null/abort", 200)):
        answer = scene[1].post(f"/v1/tenants/acme/{path}", headers=headers, content="null")
        assert answer.status_code == status, answer.text


def _admin(platform: AppPlatform) -> str:
    if not hasattr(platform, "hostile_token"):
        platform.hostile_token = platform.tokens.make("boss", "acme", "admin")  # type: ignore[attr-defined]
    return str(platform.hostile_token)  # type: ignore[attr-defined]
