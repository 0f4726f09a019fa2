"""An agreement in, its document out: each word in one spelling, without defaults."""

from dataclasses import asdict
from typing import Any

from millrace.model.agreement import QUOTAS, Agreement, Amounts, App, Schedule
from millrace.model.quantity import bytes_text, millis_text
from millrace.model.rules import rule_document
from millrace.model.sinks import SinkTarget


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
    both = {"requests": _amounts(agreement.resources.requests), "limits": _amounts(agreement.resources.limits)}
    quotas = {name: getattr(agreement.quotas, name) for name in QUOTAS}
    more: dict[str, Any] = {
        "resources": {kind: amounts for kind, amounts in both.items() if amounts},
        "quotas": {name: amount for name, amount in quotas.items() if amount is not None},
        "encryption": agreement.encryption,
        "priority": agreement.priority,
        "notifications": [dict(each) for each in agreement.notifications],
        "sinks": [target_document(target) for target in agreement.sinks],
        "rules": [rule_document(rule) for rule in agreement.rules],
    }
    return {**document, **{word: value for word, value in more.items() if value}}


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
    bounds = {"min": app.min_replicas, "max": app.max_replicas, "target_cpu_percent": app.target_cpu_percent}
    return {**image, **command, **changed, **({} if app.max_replicas is None else {"autoscale": bounds})}


def _amounts(amounts: Amounts) -> dict[str, str]:
    cpu = {} if amounts.cpu_millis is None else {"cpu": millis_text(amounts.cpu_millis)}
    return cpu if amounts.memory_bytes is None else {**cpu, "memory": bytes_text(amounts.memory_bytes)}
