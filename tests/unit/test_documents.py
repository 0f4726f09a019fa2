"""Agreements and tables as documents: seed 002's unchanged, warnings, schemas that match the parsers, and back again."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.declare.json_schemas import SCHEMAS
from millrace.declare.table import parse_table
from millrace.model.agreement import Agreement, Schedule, parse_agreement
from millrace.model.agreement_warnings import refuse_absurd
from millrace.model.cron import next_after
from millrace.model.declared_documents import app_documents, document_of, table_document_of
from millrace.model.documents import refuse_warnings
from millrace.model.errors import Invalid
from millrace.model.table_warnings import table_warnings
from millrace.model.written import DEFAULT_WORDS
from millrace.sink.json_schemas import schema_named
from tests.support.examples import examples

ROOT = Path(__file__).parents[2]
FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "speed", "type": "double"},
    {"name": "email", "type": ["null", "string"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]
SCHEMA = {"type": "record", "name": "notes", "fields": FIELDS}


def sample(client: str, document: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((ROOT / "examples" / client / f"{document}.json").read_text())
    return read


def agreed(**words: Any) -> tuple[Agreement, list[str]]:
    agreement, warnings = parse_agreement({"client": "acme", **words})
    return agreement, [warning.field for warning in warnings]


def limits(**words: Any) -> dict[str, Any]:
    return {"resources": {"limits": words}}


def test_both_samples_of_seed_002_are_taken_as_they_stand() -> None:
    first, none = parse_agreement(sample("client_a", "service_agreement"))
    assert (first.tenant, first.data_retention_days, first.schedule.cron if first.schedule else "") == (
        "client_a",
        7,
        "0 * * * *",
    )
    assert (first.resources.requests.cpu_millis, first.resources.limits.memory_bytes) == (250, 128 << 20)
    assert none == ()
    second, [warning] = parse_agreement(sample("client_b", "service_agreement"))
    assert second.data_retention_days == 3
    assert warning.field == "resources.limits.cpu"
    assert "1Gi" in warning.message
    assert "Likely 1" in warning.likely
    with pytest.raises(Invalid, match=r"resources\.limits\.cpu is 1Gi"):
        refuse_warnings([warning])


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (limits(memory="64"), "resources.limits.memory"),
        (limits(memory="500m"), "resources.limits.memory"),
        (limits(cpu="0"), "resources.limits.cpu"),
        (limits(cpu="2Ki"), "resources.limits.cpu"),
        ({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "500m"}}}, "resources.limits.cpu"),
        ({"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}}, "resources.limits.memory"),
        ({"data_retention_period_days": "0"}, "data_retention_period_days"),
        ({"sink_retention_days": 0}, "sink_retention_days"),
        ({"schedule": "0 0 30 2 *"}, "schedule"),
        ({"quotas": {"open_imports": 0}}, "quotas.open_imports"),
        ({"app": {"image": "x"}}, "app"),
        ({"app": {"image": "x", "mode": "stream", "replicas": 0}}, "app.replicas"),
    ],
)
def test_what_can_be_read_but_hardly_be_meant_gets_a_warning_by_field(words: dict[str, Any], field: str) -> None:
    assert agreed(**words)[1] == [field]


TWO_APPS = {
    "schedule": "@hourly",
    "resources": {"limits": {"memory": "64Mi"}},
    "apps": [
        {"name": "clean", "command": ["./clean"], "schedule": "@daily", "uploads_first": True},
        {"name": "watch", "image": "x:1", "mode": "stream", "resources": {"limits": {"memory": "1Gi"}}},
    ],
}


def test_several_apps_have_a_schedule_and_resources_of_their_own_or_the_agreements() -> None:
    agreement, _ = parse_agreement({"client": "acme", **TWO_APPS})
    clean, watch = agreement.by_app()
    assert (clean.app.name if clean.app else "", clean.schedule, clean.resources) == (
        "clean", Schedule("@daily"), agreement.resources,
    )  # fmt: skip
    assert (watch.schedule, watch.resources.limits.memory_bytes) == (Schedule("@hourly"), 1 << 30)
    assert parse_agreement(document_of(agreement))[0] == agreement
    single, _ = parse_agreement({"client": "acme", "app": {"command": ["./x"]}, "schedule": "@hourly"})
    assert [one.app for one in single.by_app()] == [single.app]


def test_each_app_as_a_document_is_what_the_agreement_says_of_it() -> None:
    agreement, _ = parse_agreement({"client": "acme", **TWO_APPS})
    read = [parse_agreement(one)[0] for one in app_documents(document_of(agreement))]
    assert [(one.schedule, one.resources, one.app and one.app.name) for one in read] == [
        (one.schedule, one.resources, one.app and one.app.name) for one in agreement.by_app()
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"app": {"command": ["./x"]}}, "has app and apps"),
        ({"apps": [{"command": ["./x"]}]}, "has no name"),
        ({"apps": [{"name": "a", "command": ["./x"]}, {"name": "A", "command": ["./x"]}]}, "called 'a'"),
        ({"apps": [{"name": "a.b", "command": ["./x"]}]}, "is not an app name"),
        ({"apps": [{"name": "a"}]}, "apps.a has neither image nor command"),
        ({"apps": [{"name": "a", "command": ["./x"], "replicas": -1}]}, "apps.a.replicas"),
    ],
)
def test_apps_that_cannot_be_meant_are_refused_by_name(words: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid, match=re.escape(said)):
        agreed(**{**TWO_APPS, **words})


def test_warnings_name_the_app() -> None:
    apps = [{"name": "a", "command": ["./x"], "resources": {"limits": {"cpu": "0"}}}, {"name": "b", "image": "x"}]
    assert agreed(apps=apps)[1] == ["apps.a.resources.limits.cpu", "apps.a", "apps.b"]
    absurd = {"apps": [{"name": "a", "command": ["./x"], "resources": {"limits": {"cpu": "500Mi"}}}]}
    with pytest.raises(Invalid, match=r"apps\.a\.resources\.limits\.cpu is 500Mi"):
        refuse_absurd(parse_agreement({"client": "acme", **absurd})[0], absurd)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (limits(cpu="500Mi"), "resources.limits.cpu is 500Mi: Mi is a unit of memory."),
        (limits(cpu="2000"), "resources.limits.cpu is 2000: that is 2,000 cores."),
        (limits(memory="1Ei"), "resources.limits.memory is 1Ei: 1Ei, more than a machine has."),
    ],
)
def test_amounts_that_no_machine_has_are_refused_in_words(words: dict[str, Any], said: str) -> None:
    agreement, _ = parse_agreement({"client": "acme", **words})
    with pytest.raises(Invalid) as refused:
        refuse_absurd(agreement, words)
    assert refused.value.message == said
    assert refused.value.remedy


def test_negative_amounts_are_refused_in_words() -> None:
    for words in (limits(cpu="-1"), limits(memory=-64), {"quotas": {"rows_per_day": "-5k"}}):
        with pytest.raises(Invalid, match="below 0"):
            agreed(**words)


def test_a_limit_of_cpu_in_a_unit_of_memory_is_a_number_of_cores_also_when_it_is_stored() -> None:
    agreement, _ = parse_agreement(sample("client_b", "service_agreement"))
    assert agreement.resources.limits.cpu_millis == 1000
    assert parse_agreement(document_of(agreement))[0] == agreement
    many, _ = parse_agreement({"client": "acme", **limits(cpu="1024")})
    assert parse_agreement(document_of(many))[0].resources.limits.cpu_millis == 1_024_000


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (
            {"schema": {**SCHEMA, "fields": [{"name": "d", "type": "string", "logicalType": "date"}]}},
            "schema.d.logicalType",
        ),
        ({"schema": SCHEMA, "max_file_size_mb": 0.0001}, "max_file_size_mb"),
        ({"schema": SCHEMA, "key_space": "mysimbdp_coredms"}, "key_space"),
        ({"schema": SCHEMA, "rules": [{"column": "speed", "min": 0, "action": "hold"}]}, "rules.speed_range"),
    ],
)
def test_tables_get_warnings_too(document: dict[str, Any], field: str) -> None:
    assert [warning.field for warning in table_warnings(parse_table(document), document)] == [field]


@pytest.mark.parametrize(
    ("given", "millis", "octets"),
    [
        ("250m", 250, 1),
        ("1.5", 1500, 2),
        (2, 2000, 2),
        ("1e3", 10**6, 1000),
        ("100u", 1, 1),
        (".5", 500, 1),
        ("1k", 10**6, 1000),
    ],
)
def test_quantities_are_read_as_kubernetes_does(given: Any, millis: int, octets: int) -> None:
    resources = agreed(**limits(cpu=given, memory=given))[0].resources.limits
    assert (resources.cpu_millis, resources.memory_bytes) == (millis, octets)


@pytest.mark.parametrize("given", ["1 Gi", "Gi", "-1", "1KiB", "", "0x10", True, "1_000", "9Ei"])
def test_what_is_no_quantity_is_refused(given: Any) -> None:
    with pytest.raises(Invalid, match=r"resources\.limits\.cpu"):
        agreed(**limits(cpu=given))


# Moments were worked out by hand from the rules of robfig/cron, which Kubernetes uses.
@pytest.mark.parametrize(
    ("cron", "zone", "after", "fires"),
    [
        ("0 * * * *", "UTC", "2024-02-28T23:00:00", "2024-02-29T00:00:00"),
        ("*/15 9-17 * * MON-FRI", "UTC", "2024-03-01T17:45:00", "2024-03-04T09:00:00"),
        ("5/20 * * * *", "UTC", "2024-03-01T00:26:00", "2024-03-01T00:45:00"),
        ("0 0 13 * FRI", "UTC", "2024-03-01T00:00:00", "2024-03-08T00:00:00"),
        ("0 0 */2 * MON", "UTC", "2024-03-01T00:00:00", "2024-03-03T00:00:00"),
        ("0 0 ? jan,Dec *", "UTC", "2024-02-01T00:00:00", "2024-12-01T00:00:00"),
        ("@weekly", "UTC", "2024-03-01T00:00:00", "2024-03-03T00:00:00"),
        ("@every 1h30m", "UTC", "2024-03-01T00:00:00", "2024-03-01T01:30:00"),
        ("0 0 29 2 *", "UTC", "2024-03-01T00:00:00", "2028-02-29T00:00:00"),
        ("30 9 * * *", "Europe/Helsinki", "2024-07-01T00:00:00", "2024-07-01T06:30:00"),
        # 02:30 does not exist on 10 March in New York; 01:30 exists twice on 3 November.
        ("30 2 * * *", "America/New_York", "2024-03-10T05:00:00", "2024-03-11T06:30:00"),
        ("30 1 * * *", "America/New_York", "2024-11-03T05:30:00", "2024-11-03T06:30:00"),
    ],
)
def test_schedules_fire_as_in_kubernetes(cron: str, zone: str, after: str, fires: str) -> None:
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    assert next_after(cron, zone, moment) == datetime.fromisoformat(fires).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "cron",
    ["* * * *", "60 * * * *", "* * * * 7", "5-1 * * * *", "*/0 * * * *", "@often", "TZ=UTC * * * * *", "x * * * *"],
)
def test_what_kubernetes_refuses_as_schedule_is_refused(cron: str) -> None:
    with pytest.raises(Invalid, match="schedule"):
        agreed(schedule=cron)
    with pytest.raises(Invalid, match="time_zone"):
        agreed(schedule={"cron": "* * * * *", "time_zone": "Local"})


RULES: list[dict[str, Any]] = [
    {"name": "speed", "column": "speed", "min": 0, "max": "1e6", "action": "reject"},
    {"column": "email", "matches": "^[^@]+@[^@]+$", "action": "flag"},
    {"column": "email", "max_null_percent": 5, "action": "hold"},
    {"column": "email", "max_length": 200},
    {"column": "email", "required": True, "action": "count"},
    {"column": "id", "in": [1, 2, 3]},
    {"column": "at", "max_age_seconds": 86400, "max_ahead_seconds": 60},
    {"check": "speed >= 0 or email is null"},
    {"unique": "key"},
    {"column": "id", "references": "others.id"},
    {"name": "two", "unique": ["id", "speed"], "action": "hold"},
    {"rows": {"min": 10, "min_percent": 50, "max_percent": 200, "last": 7}, "action": "hold"},
    {"bytes": {"max": 10**9}},
]
AGREEMENTS: list[dict[str, Any]] = [
    sample("client_a", "service_agreement"),
    sample("client_b", "service_agreement"),
    {"client": "acme"},
    {"client": "acme", "schedule": {"cron": "@daily", "time_zone": "Europe/Helsinki", "missed": "run_all"}},
    {
        "client": "acme",
        "app": {"command": ["./run", "-x"], "mode": "stream", "env": {"A": 1, "B": True}, "uploads_first": "true"},
    },
    {
        "client": "acme",
        "app": {"image": "i", "mode": "stream", "autoscale": {"min": 1, "max": "4", "target_cpu_percent": 70}},
    },
    {
        "client": "acme",
        "quotas": {"bytes_per_second": "10M", "rows_per_day": 1e6},
        "encryption": "true",
        "priority": "-3",
    },
    {"client": "acme", "notifications": ["https://x.example/h", {"url": "https://y.example", "events": ["import.*"]}]},
    {
        "client": "acme",
        "sinks": [
            "delta",
            {"kind": "postgres", "name": "wh", "required": False, "host": "h", "database": "d", "user": "u"},
        ],
        "rules": RULES,
    },
]
TABLES: list[dict[str, Any]] = [
    sample("client_a", "data_file_configuration"),
    sample("client_b", "data_file_configuration"),
    {
        "schema": SCHEMA,
        "primary_key": [["id", "at"], "speed"],
        "csv": {"delimiter": ";", "header": "false", "encoding": "UTF-8"},
    },
    {"schema": SCHEMA, "primary_key": ["id"], "change_feed": "true"},
    {"schema": SCHEMA, "rules": RULES, "primary_key": ["id"], "publish": "atomic", "max_file_size_mb": "1.5"},
    {
        "schema": SCHEMA,
        "table": "other",
        "name": "A title",
        "max_rejected": 5,
        "max_rejected_percent": 1.5,
        "on_error": "stop",
    },
    {
        "schema": SCHEMA,
        "file_type": "JSON",
        "key_space": "ks",
        "unknown_fields": "rescue",
        "sinks": [{"kind": "delta"}],
    },
    {
        "schema": {
            **SCHEMA,
            "fields": [*FIELDS, {"name": "d", "type": "double", "decimal_separator": ".", "header": "D"}],
        },
        "csv": {"repeated_header": "reject"},
        "written": {
            "timestamp_format": ["dd.MM.yyyy", "%F"],
            "decimal_separator": ",",
            "null_texts": ["-"],
            "trim": True,
        },
    },
]
NO_AGREEMENTS: list[dict[str, Any]] = [
    {},
    {"client": "../x"},
    {"client": "acme", "days": 7},
    {"client": "acme", "data_retention_period_days": "a week"},
    {"client": "acme", "data_retention_period_days": -1},
    {"client": "acme", "data_retention_period_days": True},
    {"client": "acme", "resources": {"limits": {"gpu": 1}}},
    {"client": "acme", "resources": {"limits": {"cpu": "1 core"}}},
    {"client": "acme", "app": {}},
    {"client": "acme", "app": {"image": "i", "mode": "often"}},
    {"client": "acme", "app": {"image": "i", "env": {"CLIENT_ID": "x"}}},
    {"client": "acme", "priority": 11},
    {"client": "acme", "encryption": "yes"},
    {"client": "acme", "schedule": {"time_zone": "UTC"}},
    {"client": "acme", "notifications": ["ftp://x"]},
    {"client": "acme", "sinks": []},
    {"client": "acme", "rules": [{"column": "a"}]},
    {"client": "acme", "rules": [{"column": "a", "min": 1, "in": [1]}]},
    {"client": "acme", "rules": [{"column": "a", "max_null_percent": 5, "action": "reject"}]},
    {"client": "acme", "rules": [{"min": 1}]},
    {"client": "acme", "rules": [{"rows": {"last": 3}}]},
    {"client": "acme", "rules": [{"column": "a", "matches": "x", "action": "explode"}]},
]
NO_TABLES: list[dict[str, Any]] = [
    {},
    {"schema": {"type": "array"}},
    {"schema": SCHEMA, "file_type": "xlsx"},
    {"schema": SCHEMA, "csv": {"delimiter": ";;"}},
    {"schema": SCHEMA, "csv": {"colour": "red"}},
    {"schema": SCHEMA, "primary_key": "id"},
    {"schema": SCHEMA, "max_rejected_percent": 101},
    {"schema": SCHEMA, "publish": "sometimes"},
    {"schema": SCHEMA, "unknown": 1},
    {"schema": SCHEMA, "change_feed": 1},
    {"schema": SCHEMA, "csv": {"repeated_header": "keep"}},
    {"schema": SCHEMA, "written": {"decimal_separator": "12"}},
    {"schema": SCHEMA, "written": {"format": "dd.MM.yyyy"}},
    {"schema": SCHEMA, "written": {"true_texts": [True]}},
    {"schema": {**SCHEMA, "fields": [{"name": "d", "type": "string", "trim": "maybe"}]}},
]


def validates(name: str, document: dict[str, Any]) -> bool:
    return bool(jsonschema.Draft202012Validator(schema_named(name)).is_valid(document))


@pytest.mark.parametrize("name", SCHEMAS)
def test_published_schemas_are_those_of_the_code(name: str) -> None:
    published = json.loads((ROOT / "schemas" / f"{name}.json").read_text())
    assert published == schema_named(name), f"write `millrace schema {name}` to schemas/{name}.json"
    jsonschema.Draft202012Validator.check_schema(published)


@pytest.mark.parametrize("document", AGREEMENTS)
def test_an_agreement_validates_and_comes_back_as_it_was(document: dict[str, Any]) -> None:
    assert validates("agreement", document)
    agreement, _ = parse_agreement(document)
    again = json.loads(json.dumps(document_of(agreement)))
    assert validates("agreement", again)
    assert parse_agreement(again)[0] == agreement
    assert document_of(parse_agreement(again)[0]) == again


@pytest.mark.parametrize("document", TABLES)
def test_a_table_validates_and_comes_back_as_it_was(document: dict[str, Any]) -> None:
    assert validates("table", document)
    table = parse_table(document)
    again = json.loads(json.dumps(table_document_of(table)))
    assert validates("table", again)
    assert parse_table(again) == table


@pytest.mark.parametrize("document", NO_AGREEMENTS)
def test_neither_parser_nor_schema_takes_what_is_no_agreement(document: dict[str, Any]) -> None:
    assert not validates("agreement", document)
    with pytest.raises(Invalid):
        parse_agreement(document)


@pytest.mark.parametrize("document", NO_TABLES)
def test_neither_parser_nor_schema_takes_what_is_no_table(document: dict[str, Any]) -> None:
    assert not validates("table", document)
    with pytest.raises(Invalid):
        parse_table(document)


_ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 2000), st.floats(-2, 1e5, allow_nan=False), st.just([]), st.just({}),
    st.sampled_from(["", "0", "7", "1.5", "true", "False", "250m", "64Mi", "key", "csv", "atomic", "* * * * *", "id"]),
    st.lists(st.sampled_from(["id", "delta", "*", "", 1]), max_size=2),
)  # fmt: skip


def _changed(document: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(document))
    inner = changed
    for word in path[:-1]:
        inner = inner.setdefault(word, {})
    inner[path[-1]] = value
    return changed


@examples(300)
@given(st.data())
def test_every_agreement_that_the_parser_takes_validates(data: st.DataObject) -> None:
    full = {"client": "acme", "app": {"image": "i"}, "schedule": {"cron": "* * * * *"}, "resources": {}, "quotas": {}}
    paths = [
        [word]
        for word in schema_named("agreement")["properties"]
        if word not in ("client", "tenant", "app", "schedule")
    ]
    paths += [["app", word] for word in ("image", "command", "mode", "env", "replicas", "autoscale", "uploads_first")]
    paths += [["schedule", "missed"], ["resources", "limits"], ["quotas", "open_imports"], ["quotas", "rows_per_day"]]
    document = _changed(full, data.draw(st.sampled_from(paths)), data.draw(_ODD))
    _in_step("agreement", document, lambda: parse_agreement(document))


@examples(300)
@given(st.data())
def test_every_table_that_the_parser_takes_validates(data: st.DataObject) -> None:
    words = [word for word in schema_named("table")["properties"] if word not in ("tenant", "schema")]
    paths = [[word] for word in words] + [
        ["csv", word] for word in ("header", "delimiter", "quote", "null_text", "encoding", "repeated_header")
    ]
    paths += [["written", word] for word in DEFAULT_WORDS]
    document = _changed({"schema": SCHEMA}, data.draw(st.sampled_from(paths)), data.draw(_ODD))
    _in_step("table", document, lambda: parse_table(document))


def _in_step(name: str, document: dict[str, Any], parse: Any) -> None:
    try:
        parse()
    except Invalid:
        return
    assert validates(name, document)
