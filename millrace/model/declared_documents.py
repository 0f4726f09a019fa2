"""An agreement or a table's declaration in, its document out: each word in one spelling, without defaults."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from millrace.model.agreement import QUOTAS, THE_APP, Agreement, Amounts, App, Resources, Schedule
from millrace.model.quantity import bytes_text, millis_text
from millrace.model.rules import rule_document
from millrace.model.sinks import SinkTarget
from millrace.model.table import CsvDialect, TableDeclaration

_MEGABYTE = 1 << 20
_HEADED = CsvDialect(header=True)
_POLICIES = ("unknown_fields", "deletion_vectors", "key_space", "concurrency", "on_error", "publish", "compatibility")


def document_of(agreement: Agreement) -> dict[str, Any]:
    """`parse_agreement(document_of(a))` is `a` again."""
    document: dict[str, Any] = {"client": agreement.tenant}
    if agreement.description:
        document["description"] = agreement.description
    document["data_retention_period_days"] = agreement.data_retention_days
    if agreement.sink_retention_days is not None:
        document["sink_retention_days"] = agreement.sink_retention_days
    if agreement.schedule is not None:
        document["schedule"] = _schedule(agreement.schedule)
    if agreement.app is not None:
        document["app"] = _app(agreement.app)
    if agreement.apps:
        document["apps"] = [{"name": app.name, **_app(app)} for app in agreement.apps]
    quotas = {name: getattr(agreement.quotas, name) for name in QUOTAS}
    more: dict[str, Any] = {
        "resources": _resources(agreement.resources),
        "quotas": {name: amount for name, amount in quotas.items() if amount is not None},
        "encryption": agreement.encryption,
        "priority": agreement.priority,
        "notifications": [dict(each) for each in agreement.notifications],
        "sinks": [target_document(target) for target in agreement.sinks],
        "rules": [rule_document(rule) for rule in agreement.rules],
    }
    return {**document, **{word: value for word, value in more.items() if value}, **agreement.budget.to_document()}


def target_document(target: SinkTarget) -> str | dict[str, Any]:
    if target == SinkTarget(target.kind, target.kind):
        return target.kind
    named = {} if target.name == target.kind else {"name": target.name}
    return {"kind": target.kind, **named, **({} if target.required else {"required": False}), **target.settings}


def _schedule(schedule: Schedule) -> str | dict[str, str]:
    return schedule.cron if schedule == Schedule(schedule.cron) else asdict(schedule)


def _app(app: App) -> dict[str, Any]:
    plain = App(image=app.image, command=app.command)
    changed = {
        name: getattr(app, name)
        for name in ("mode", "env", "uploads_first", "replicas")
        if getattr(app, name) != getattr(plain, name)
    }
    image = {} if app.image is None else {"image": app.image}
    command = {"command": list(app.command)} if app.command else {}
    own: dict[str, Any] = {} if app.name == THE_APP else {"name": app.name}
    if app.schedule is not None:
        own["schedule"] = _schedule(app.schedule)
    if app.resources is not None:
        own["resources"] = _resources(app.resources)
    bounds = {"min": app.min_replicas, "max": app.max_replicas, "target_cpu_percent": app.target_cpu_percent}
    return {**own, **image, **command, **changed, **({} if app.max_replicas is None else {"autoscale": bounds})}


def app_documents(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """An agreement's document in, one for each of its programs out, as if that were the only one."""
    apps = document.get("apps") or ([document["app"]] if document.get("app") is not None else [])
    whole = {word: value for word, value in document.items() if word not in ("app", "apps")}
    made = []
    for app in apps:
        own = {word: app[word] for word in ("schedule", "resources") if app.get(word) is not None}
        rest = {word: value for word, value in app.items() if word not in ("schedule", "resources")}
        made.append({**whole, **own, "app": rest})
    return made


def _resources(resources: Resources) -> dict[str, dict[str, str]]:
    both = {"requests": _amounts(resources.requests), "limits": _amounts(resources.limits)}
    return {kind: amounts for kind, amounts in both.items() if amounts}


def _amounts(amounts: Amounts) -> dict[str, str]:
    cpu = {} if amounts.cpu_millis is None else {"cpu": millis_text(amounts.cpu_millis)}
    return cpu if amounts.memory_bytes is None else {**cpu, "memory": bytes_text(amounts.memory_bytes)}


def table_document_of(table: TableDeclaration) -> dict[str, Any]:
    """`parse_table(table_document_of(t))` is `t` again."""
    plain = TableDeclaration(table.name, table.schema)
    document: dict[str, Any] = {"table": table.name}
    if table.title != table.name:
        document["name"] = table.title
    document["file_type"] = table.file_type
    if table.csv != _HEADED:
        document["csv"] = {name: value for name, value in asdict(table.csv).items() if value != getattr(_HEADED, name)}
    if table.written is not None and (said := table.written.to_dict()):
        document["written"] = said
    document |= {"schema": table.schema, "primary_key": _primary_key(table)}
    if table.max_file_bytes is not None:
        document["max_file_size_mb"] = _megabytes(table.max_file_bytes)
    document |= {name: getattr(table, name) for name in _POLICIES if getattr(table, name) != getattr(plain, name)}
    document |= table.budget.to_document()
    if table.keep_raw_days is not None:
        document["keep_raw_days"] = table.keep_raw_days
    if table.change_feed:
        document["change_feed"] = True
    document["sinks"] = [target_document(target) for target in table.targets]
    if table.rules:
        document["rules"] = [rule_document(rule) for rule in table.rules]
    return document


def _primary_key(table: TableDeclaration) -> list[Any]:
    first = list(table.partition_key)
    if len(first) <= 1:
        return list(table.primary_key)
    return [first, *table.primary_key[len(first) :]]


def _megabytes(octets: int) -> int | float:
    return octets // _MEGABYTE if octets % _MEGABYTE == 0 else octets / _MEGABYTE
