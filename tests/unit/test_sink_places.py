"""Where a Delta table lives is decided when it is declared: by its tenant, else by the operator, and then for good."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millrace.declare.table import parse_table
from millrace.exchange.home import Home
from millrace.exchange.places import places_below
from millrace.model.errors import Clash, Invalid, Unavailable
from millrace.model.sinks import REMOTE_DELTA_KIND
from millrace.model.table import TableDeclaration, define
from millrace.settings import Settings
from millrace.sink import registry
from millrace.sink.context import SinkContext
from millrace.sink.delta.places import copies_of, location_of, placed, table_objects, table_store
from millrace.sink.delta.settings import DeltaRemoteSettings
from tests.support.sink_context import TellingSecrets

KEYS = {"access_key": "env:MILLRACE_SECRET_A", "secret_key": "env:MILLRACE_SECRET_B"}
BUCKET = {"kind": "delta", "location": "s3://bucket/lake", **KEYS}


def table(*sinks: Any) -> TableDeclaration:
    schema = {"type": "record", "name": "notes", "fields": [{"name": "id", "type": "long"}]}
    return parse_table({"schema": schema, "primary_key": ["id"], "sinks": list(sinks)})


def context(home: Path = Path("/nowhere")) -> SinkContext:
    return replace(SinkContext.of(Settings(), places_below(home)), secrets=TellingSecrets(tell=str), tenant="acme")


def refuse_unable(declared: TableDeclaration) -> None:
    registry.refuse_unable(declared, context())


@pytest.fixture
def platform_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_LAKE__LOCATION", "s3://company/lake/")
    monkeypatch.setenv("MILLRACE_LAKE__ENDPOINT", "http://10.0.0.9:9000")
    monkeypatch.setenv("MILLRACE_LAKE__ACCESS_KEY", "env:MILLRACE_SECRET_A")
    monkeypatch.setenv("MILLRACE_LAKE__SECRET_KEY", "env:MILLRACE_SECRET_B")


def test_a_location_makes_it_a_sink_that_may_be_away() -> None:
    (target,) = table(BUCKET).targets
    assert (target.name, target.kind) == ("delta", REMOTE_DELTA_KIND)
    refuse_unable(table("delta", {**BUCKET, "name": "copy"}))
    with pytest.raises(Invalid, match="no location"):
        table({"kind": "delta", "endpoint": "https://store.example"})
    with pytest.raises(Invalid, match="no location"):
        table({"kind": "delta", "name": "main"})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"location": "s3://bucket/lake"}, "access_key"),
        ({"location": "s3:///lake", **KEYS}, "no place"),
        ({"location": "s3://bucket/../other", **KEYS}, "no place"),
        ({"location": "ftp://host/lake"}, "no place"),
        ({"location": "hdfs://user@host/lake"}, "no place"),
        ({"location": "s3://bucket", "access_key": "AKIA123", "secret_key": "plain"}, "no reference"),
        ({"location": "platform", "endpoint": "https://mine.example"}, "settings of yours"),
        ({"location": "s3://bucket", "key": "x", **KEYS}, "no setting 'key'"),
    ],
)
def test_what_could_never_work_is_refused_when_it_is_declared(settings: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        refuse_unable(table({"kind": "delta", **settings}))


def test_names_follow_the_one_rule_and_every_place_has_copies_of_its_own(tmp_path: Path) -> None:
    here, place = context(tmp_path), DeltaRemoteSettings(location="s3://bucket/lake/", **KEYS)
    assert table_objects(here, place, "acme", "notes").url == "s3://bucket/lake/acme/notes"
    with pytest.raises(Invalid, match="not a tenant name"):
        table_objects(here, place, "../other", "notes")
    other = place.model_copy(update={"endpoint": "https://store.example"})
    assert copies_of(here, place, "acme", "notes") != copies_of(here, other, "acme", "notes")


def test_a_tenant_s_endpoint_is_judged_and_the_operator_s_is_not(platform_lake: None) -> None:
    inside = DeltaRemoteSettings(location="s3://bucket/lake", endpoint="http://10.0.0.9:9000", **KEYS)
    with pytest.raises(Invalid, match="not a public address"):
        table_objects(context(), inside, "acme", "notes").get("x")
    assert (
        table_objects(context(), DeltaRemoteSettings(location="platform"), "acme", "notes").url
        == "s3://company/lake/acme/notes"
    )


def test_new_tables_go_where_the_operator_wants_them(platform_lake: None, tmp_path: Path) -> None:
    new = placed(context(), table("delta"), ())
    assert new.targets[0].settings == {"location": "platform"}, "nothing of the operator's is told"
    assert location_of(context(tmp_path), define("acme", new, 1)) == "s3://company/lake/acme/notes"
    assert placed(context(), table("delta"), new.targets) == new
    assert placed(context(), table(BUCKET), ()).targets == table(BUCKET).targets


def test_a_table_stays_where_it_is_whatever_the_operator_wants_now(platform_lake: None) -> None:
    old = table("delta")
    assert placed(context(), table("delta"), old.targets) == old


def test_a_table_of_the_platform_s_lake_does_not_come_home_when_the_setting_is_gone(tmp_path: Path) -> None:
    moved = table({"kind": "delta", "location": "platform"})
    assert placed(context(), table("delta"), moved.targets) == moved
    assert location_of(context(tmp_path), define("acme", moved, 1)) == "platform"
    with pytest.raises(Unavailable, match="no lake"):
        table_store(context(tmp_path), define("acme", moved, 1))


def test_a_table_does_not_move() -> None:
    with pytest.raises(Clash, match="cannot move"):
        placed(context(), table(BUCKET), table("delta").targets)
    with pytest.raises(Clash, match="cannot move"):
        placed(context(), table({**BUCKET, "location": "s3://other"}), table(BUCKET).targets)
    placed(context(), table("delta", {**BUCKET, "name": "copy"}), table("delta").targets)


def test_rows_are_read_on_this_machine_if_they_are_here(tmp_path: Path) -> None:
    home = Home(tmp_path)
    both = define("acme", table({**BUCKET, "name": "copy"}, "delta"), 1)
    assert table_store(context(tmp_path), both).where == str(home.table("acme", "notes"))
    assert table_store(context(tmp_path), define("acme", table(BUCKET), 1)).where == "s3://bucket/lake/acme/notes"
