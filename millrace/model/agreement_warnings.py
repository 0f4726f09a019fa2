"""Warnings about an agreement: values that are valid but likely a mistake, each with the likely intention."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from millrace.model.cron import next_after
from millrace.model.documents import DeclarationWarning
from millrace.model.errors import Invalid
from millrace.model.quantity import bytes_text, memory_unit, millis_text

if TYPE_CHECKING:
    from millrace.model.agreement import Agreement, Amounts, Resources

MOST_CPU_MILLIS = 1_024_000
LITTLE_MEMORY_BYTES = 4 << 20
MOST_MEMORY_BYTES = 64 << 40
_ADD_APP = (
    "Add app: {command: [./pass_through.sh], uploads_first: true}, or name an image; or set MILLRACE_MYSIMBDP=true for the "
    "whole platform."
)
# Any moment: a schedule either fires within five years of it or never.
_SOME_MOMENT = datetime(2024, 1, 1, tzinfo=UTC)


def agreement_warnings(agreement: "Agreement", given: Mapping[str, Any]) -> tuple[DeclarationWarning, ...]:
    return (
        *_retention(agreement),
        *_schedule(agreement),
        *_resources(agreement, given),
        *_app(agreement),
        *_quotas(agreement),
        *(found for number, one in enumerate(agreement.by_app()) for found in _of_app(one, number, agreement, given)),
    )


def _of_app(
    one: "Agreement", number: int, whole: "Agreement", given: Mapping[str, Any]
) -> Iterator[DeclarationWarning]:
    """What is wrong with one of several programs, or with its own schedule and resources."""
    app = one.app
    if app is None or not whole.apps:
        return
    words = given["apps"][number]
    own = replace(one, schedule=app.schedule, resources=app.resources or type(one.resources)())
    for found in (*_schedule(own), *_resources(own, words), *_app(one)):
        field = found.field.removeprefix("app.")
        yield replace(found, field=f"apps.{app.name}" if field == "app" else f"apps.{app.name}.{field}")


def warnings_without_app(agreement: "Agreement") -> tuple[DeclarationWarning, ...]:
    """What does nothing because there is no program; for platforms whose settings name none either."""
    if agreement.by_app():
        return ()
    past = "files sent to /upload-file go straight to the table, not to a staging directory"
    found = []
    if agreement.schedule is not None:
        found.append(DeclarationWarning("schedule", f"has no effect: the agreement has no app; {past}.", _ADD_APP))
    if agreement.resources != type(agreement.resources)():
        found.append(DeclarationWarning("resources", "has no effect: the agreement has no app.", _ADD_APP))
    return tuple(found)


def refuse_absurd(agreement: "Agreement", given: Mapping[str, Any]) -> None:
    """Amounts that no machine has. Only for what is declared now: an agreement of an earlier version stays readable."""
    _refuse_absurd("resources", agreement.resources, given.get("resources") or {})
    spelled = [given["app"]] if agreement.app is not None else given.get("apps") or []
    for words, app in zip(spelled, agreement.apps or (agreement.app,), strict=False):
        if app is not None and app.resources is not None:
            where = "app" if agreement.app is not None else f"apps.{app.name}"
            _refuse_absurd(f"{where}.resources", app.resources, words.get("resources") or {})


def _refuse_absurd(what: str, resources: "Resources", given: Mapping[str, Any]) -> None:
    for kind, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        words = given.get(kind) or {}
        cpu, memory, field = amounts.cpu_millis, amounts.memory_bytes, f"{what}.{kind}"
        if cpu is not None and cpu > MOST_CPU_MILLIS:
            unit = memory_unit(words.get("cpu"))
            what = f"{unit} is a unit of memory" if unit else f"that is {cpu // 1000:,} cores"
            raise Invalid(
                f"{field}.cpu is {words.get('cpu')}: {what}.",
                remedy="Write cores: 2, 0.5 or 500m. No machine has more than 1,024.",
                code="absurd_amount",
            )
        if memory is not None and memory > MOST_MEMORY_BYTES:
            raise Invalid(
                f"{field}.memory is {words.get('memory')}: {bytes_text(memory)}, more than a machine has.",
                remedy="Write a smaller amount: 128Mi, 2Gi.",
                code="absurd_amount",
            )


def _retention(agreement: "Agreement") -> Iterator[DeclarationWarning]:
    if agreement.data_retention_days == 0:
        yield DeclarationWarning(
            "data_retention_period_days",
            "is 0: files, raw chunks and rejected rows would go as soon as they are processed.",
            "Likely 1 or more.",
        )
    if agreement.sink_retention_days == 0:
        yield DeclarationWarning(
            "sink_retention_days",
            "is 0: rows would go as soon as they are written.",
            "Leave it out to keep rows for ever.",
        )


def _schedule(agreement: "Agreement") -> Iterator[DeclarationWarning]:
    schedule = agreement.schedule
    if schedule is None:
        return
    if next_after(schedule.cron, schedule.time_zone, _SOME_MOMENT) is None:
        yield DeclarationWarning(
            "schedule",
            f"is {schedule.cron!r}, which never fires.",
            "Likely another day: the day of month must exist in the month.",
        )
    if agreement.app is not None and agreement.app.mode == "stream":
        yield DeclarationWarning(
            "schedule", "is ignored: the app's mode is stream.", "Likely mode: batch, or no schedule."
        )


def _resources(agreement: "Agreement", given: Mapping[str, Any]) -> Iterator[DeclarationWarning]:
    resources = agreement.resources
    for kind, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        words = (given.get("resources") or {}).get(kind) or {}
        yield from _cpu(f"resources.{kind}.cpu", amounts, words.get("cpu"))
        yield from _memory(f"resources.{kind}.memory", amounts, words.get("memory"))
    yield from _below(resources.requests, resources.limits)


def _cpu(field: str, amounts: "Amounts", spelled: object) -> Iterator[DeclarationWarning]:
    millis = amounts.cpu_millis
    if millis == 0:
        yield DeclarationWarning(field, f"is {spelled}: no time at all.", "Likely 100m.")
    elif millis is not None and (unit := memory_unit(spelled)) and millis <= MOST_CPU_MILLIS:
        meant = millis_text(millis)
        yield DeclarationWarning(
            field, f"is {spelled}: {unit} is a unit of memory. It is read as {meant}.", f"Likely {meant}."
        )


def _memory(field: str, amounts: "Amounts", spelled: object) -> Iterator[DeclarationWarning]:
    octets = amounts.memory_bytes
    if octets is None:
        return
    if octets < LITTLE_MEMORY_BYTES:
        digits = str(spelled).rstrip("numkKi")
        yield DeclarationWarning(
            field, f"is {spelled}: {octets:,} bytes, too little for any program.", f"Likely {digits}Mi."
        )


def _below(requests: "Amounts", limits: "Amounts") -> Iterator[DeclarationWarning]:
    for what, least, most, shown in (
        ("cpu", requests.cpu_millis, limits.cpu_millis, millis_text),
        ("memory", requests.memory_bytes, limits.memory_bytes, bytes_text),
    ):
        if least is not None and most is not None and most < least:
            message = f"is {shown(most)}, below the request of {shown(least)}: Kubernetes would refuse it."
            yield DeclarationWarning(f"resources.limits.{what}", message, f"Likely {shown(least)} or more.")


def _app(agreement: "Agreement") -> Iterator[DeclarationWarning]:
    app = agreement.app
    if app is None:
        return
    if app.replicas == 0:
        yield DeclarationWarning("app.replicas", "is 0: the app would never run.", "Likely 1.")
    if app.mode == "batch" and agreement.schedule is None:
        yield DeclarationWarning(
            "app",
            "runs in batches and has no schedule: it runs only on request.",
            "Add a schedule, unless `millrace app run` is all it needs.",
        )
    if app.mode == "batch" and app.max_replicas is not None:
        yield DeclarationWarning("app.autoscale", "is ignored: a batch runs in app.replicas.", "Likely replicas.")
    if app.max_replicas is not None and agreement.resources.requests.cpu_millis is None:
        yield DeclarationWarning(
            "app.autoscale",
            "has nothing to measure against: resources.requests.cpu is missing.",
            "Likely a request of cpu is missing.",
        )


def _quotas(agreement: "Agreement") -> Iterator[DeclarationWarning]:
    quotas = agreement.quotas
    for name in ("bytes_per_second", "requests_per_second", "open_imports", "rows_per_day", "storage_bytes"):
        if getattr(quotas, name) == 0:
            remedy = "Leave it out for the platform's own limit."
            yield DeclarationWarning(f"quotas.{name}", "is 0: nothing could be imported.", remedy)
