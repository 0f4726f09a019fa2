"""A tenant's service agreement: a document in, native or as in seed 002; the value that the platform reads out, with a
warning for each value that is likely a mistake."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from millrace.model.agreement_warnings import agreement_warnings
from millrace.model.budget import BUDGET_WORDS, NO_BUDGET, Budget, parse_budget
from millrace.model.cron import parse_cron, parse_zone
from millrace.model.documents import DeclarationWarning, flag, listed, mapping, one_of, text, whole
from millrace.model.errors import Invalid
from millrace.model.names import checked_name
from millrace.model.quantity import in_units, parse_cores, parse_quantity
from millrace.model.rules import Rule, parse_rules
from millrace.model.sinks import SinkTarget, parse_targets

MISSED = ("skip", "run_once", "run_all")
BATCH, STREAM = MODES = ("batch", "stream")
LOWEST_PRIORITY, HIGHEST_PRIORITY = -10, 10
MOST_DAYS = 36_500
MOST_REPLICAS = 1000
MOST_APPS = 50
# The name of an app that is given none.
THE_APP = "app"
MOST_NOTIFICATIONS = 10
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
# Of tenants whose agreement names none, where the operator wants a platform as seed 002 describes it.
DEFAULT_PROGRAM = "pass_through.sh"
# Reserved for the platform's own variables.
OWN_ENV = ("CLIENT_ID", "SOURCE_PATH")


@dataclass(frozen=True, slots=True)
class Schedule:
    cron: str
    time_zone: str = "UTC"
    missed: str = "run_once"


@dataclass(frozen=True, slots=True)
class App:
    """A program of the tenant. `uploads_first`: files sent by REST land in its `in` folder. Replicas are fixed unless
    `max_replicas` is given. `schedule` and `resources`: None: those of the agreement."""

    image: str | None = None
    command: tuple[str, ...] = ()
    mode: str = "batch"
    env: dict[str, str] = field(default_factory=dict)
    uploads_first: bool = False
    replicas: int = 1
    min_replicas: int | None = None
    max_replicas: int | None = None
    target_cpu_percent: int | None = None
    name: str = THE_APP
    schedule: Schedule | None = None
    resources: "Resources | None" = None

    @property
    def runs_here(self) -> bool:
        """Whether it runs on the platform's own machine. With an image, the command runs in the image, on Kubernetes."""
        return self.image is None and bool(self.command)


@dataclass(frozen=True, slots=True)
class Amounts:
    cpu_millis: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Resources:
    requests: Amounts = Amounts()
    limits: Amounts = Amounts()


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """None: the platform's own limit."""

    bytes_per_second: int | None = None
    requests_per_second: int | None = None
    open_imports: int | None = None
    rows_per_day: int | None = None
    storage_bytes: int | None = None
    parked_bytes: int | None = None


QUOTAS = ("bytes_per_second", "requests_per_second", "open_imports", "rows_per_day", "storage_bytes", "parked_bytes")


@dataclass(frozen=True, slots=True)
class Agreement:
    tenant: str
    data_retention_days: int = 7
    sink_retention_days: int | None = None
    schedule: Schedule | None = None
    app: App | None = None
    apps: tuple[App, ...] = ()
    resources: Resources = Resources()
    quotas: QuotaLimits = QuotaLimits()
    encryption: bool = False
    priority: int = 0
    notifications: tuple[dict[str, Any], ...] = ()
    sinks: tuple[SinkTarget, ...] = ()
    rules: tuple[Rule, ...] = ()
    budget: Budget = NO_BUDGET
    description: str = ""

    def by_app(self) -> "tuple[Agreement, ...]":
        """One agreement for each program, as if it were the only one."""
        return tuple(
            replace(
                self,
                app=app,
                apps=(),
                schedule=app.schedule or self.schedule,
                resources=app.resources or self.resources,
            )
            for app in self.apps or ((self.app,) if self.app is not None else ())
        )


WORDS = (
    "client", "description", "data_retention_period_days", "sink_retention_days", "schedule", "app", "apps", "resources",
    "quotas", "encryption", "priority", "notifications", "sinks", "rules", *BUDGET_WORDS,
)  # fmt: skip
SCHEDULE_WORDS = ("cron", "time_zone", "missed")
APP_WORDS = (
    "image", "command", "mode", "env", "uploads_first", "replicas", "autoscale", "name", "schedule", "resources",
)  # fmt: skip
AUTOSCALE_WORDS = ("min", "max", "target_cpu_percent")
NOTIFICATION_WORDS = ("url", "events", "name")


def parse_agreement(document: Mapping[str, Any]) -> tuple[Agreement, tuple[DeclarationWarning, ...]]:
    """Refuses what cannot be read, and warns of values that are likely a mistake."""
    given = mapping("the agreement", document, WORDS)
    sinks, rules, kept = given.get("sinks"), given.get("rules"), given.get("sink_retention_days")
    agreement = Agreement(
        tenant=checked_name("tenant", given.get("client")),
        data_retention_days=whole(
            "data_retention_period_days", given.get("data_retention_period_days", 7), 0, MOST_DAYS
        ),
        sink_retention_days=None if kept is None else whole("sink_retention_days", kept, 0, MOST_DAYS),
        schedule=_schedule(given.get("schedule")),
        app=None if given.get("app") is None else _app("app", given["app"]),
        apps=_apps(given),
        resources=_resources("resources", given.get("resources")),
        quotas=_quotas(given.get("quotas")),
        encryption=flag("encryption", given.get("encryption", False)),
        priority=whole("priority", given.get("priority", 0), LOWEST_PRIORITY, HIGHEST_PRIORITY),
        notifications=_notifications(given.get("notifications")),
        sinks=() if sinks is None else parse_targets(sinks),
        rules=() if rules is None else parse_rules(rules),
        budget=parse_budget(given),
        description=text("description", given.get("description", ""), 10_000, 0),
    )
    return agreement, agreement_warnings(agreement, given)


def _schedule(given: object) -> Schedule | None:
    if given is None:
        return None
    if isinstance(given, str):
        given = {"cron": given}
    words = mapping("schedule", given, SCHEDULE_WORDS)
    schedule = Schedule(
        cron=" ".join(text("schedule", words.get("cron")).split()),
        time_zone=text("schedule.time_zone", words.get("time_zone", "UTC")),
        missed=one_of("schedule.missed", words.get("missed", "run_once"), MISSED),
    )
    parse_cron(schedule.cron)
    parse_zone(schedule.time_zone)
    return schedule


def _apps(given: Mapping[str, Any]) -> tuple[App, ...]:
    """Several programs, each with a name of its own. Two that differ in case only would share a folder somewhere."""
    found = given.get("apps")
    if found is None:
        return ()
    if given.get("app") is not None:
        raise Invalid("The agreement has app and apps.", remedy="Move the one program into apps, with a name.")
    apps = tuple(_named_app(each) for each in listed("apps", found))
    if len(apps) > MOST_APPS:
        raise Invalid(f"apps has {len(apps)} programs.", remedy=f"Give at most {MOST_APPS}.")
    names = [app.name.lower() for app in apps]
    for name in names:
        if names.count(name) > 1:
            raise Invalid(f"Two apps are called {name!r}.", remedy="Give each a name of its own.")
    return apps


def _named_app(given: object) -> App:
    name = given.get("name") if isinstance(given, Mapping) else None
    if name is None:
        raise Invalid(f"apps holds {given!r:.60}, which has no name.", remedy="Name each app.")
    return _app(f"apps.{checked_name('app', name)}", given)


def _app(what: str, given: object) -> App:
    words = mapping(what, given, APP_WORDS)
    image, command = words.get("image"), words.get("command", ())
    command = tuple(text(f"{what}.command", word, 4096) for word in listed(f"{what}.command", command))
    if image is None and not command:
        raise Invalid(f"{what} has neither image nor command.", remedy="Name the image, or the command that runs it.")
    scale, resources = words.get("autoscale"), words.get("resources")
    where = f"{what}.autoscale"
    bounds = {} if scale is None else _autoscale(where, mapping(where, scale, AUTOSCALE_WORDS))
    return App(
        image=None if image is None else text(f"{what}.image", image, 512),
        command=command,
        mode=one_of(f"{what}.mode", words.get("mode", "batch"), MODES),
        env=_env(f"{what}.env", words.get("env", {})),
        uploads_first=flag(f"{what}.uploads_first", words.get("uploads_first", False)),
        replicas=whole(f"{what}.replicas", words.get("replicas", 1), 0, MOST_REPLICAS),
        name=checked_name("app", words.get("name", THE_APP)),
        schedule=_schedule(words.get("schedule")),
        resources=None if resources is None else _resources(f"{what}.resources", resources),
        **bounds,
    )


def _autoscale(what: str, words: Mapping[str, Any]) -> dict[str, int]:
    least = whole(f"{what}.min", words.get("min", 1), 1, MOST_REPLICAS)
    most = whole(f"{what}.max", words.get("max"), 1, MOST_REPLICAS)
    if most < least:
        raise Invalid(f"{what}.max is {most}, below min {least}.", remedy="Give a range that is not empty.")
    cpu = whole(f"{what}.target_cpu_percent", words.get("target_cpu_percent", 80), 1, 1000)
    return {"min_replicas": least, "max_replicas": most, "target_cpu_percent": cpu}


def _env(what: str, given: object) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise Invalid(f"{what} is {given!r:.60}.", remedy="Give a mapping of names to texts.")
    for name, value in given.items():
        if not isinstance(name, str) or not _ENV_NAME.fullmatch(name) or name in OWN_ENV:
            raise Invalid(f"{what} names {name!r:.60}.", remedy=f"Use letters, digits, '_'; not {', '.join(OWN_ENV)}.")
        if not isinstance(value, str | int | float) or "\0" in str(value):
            raise Invalid(f"{what}.{name} is {value!r:.60}.", remedy="Give a text.")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def _resources(what: str, given: object) -> Resources:
    if given is None:
        return Resources()
    words = mapping(what, given, ("requests", "limits"))
    return Resources(*(_amounts(f"{what}.{kind}", words.get(kind)) for kind in ("requests", "limits")))


def _amounts(what: str, given: object) -> Amounts:
    if given is None:
        return Amounts()
    words = mapping(what, given, ("cpu", "memory"))
    cpu, memory = words.get("cpu"), words.get("memory")
    return Amounts(
        None if cpu is None else in_units(parse_cores(f"{what}.cpu", cpu), Fraction(1, 1000)),
        None if memory is None else in_units(parse_quantity(f"{what}.memory", memory), Fraction(1)),
    )


def _quotas(given: object) -> QuotaLimits:
    if given is None:
        return QuotaLimits()
    words = mapping("quotas", given, QUOTAS)
    amounts = {name: parse_quantity(f"quotas.{name}", value) for name, value in words.items() if value is not None}
    return QuotaLimits(**{name: in_units(amount, Fraction(1)) for name, amount in amounts.items()})


def _notifications(given: object) -> tuple[dict[str, Any], ...]:
    found = () if given is None else tuple(_notification(each) for each in listed("notifications", given))
    if len(found) > MOST_NOTIFICATIONS:
        raise Invalid(f"notifications has {len(found)} targets.", remedy=f"Give at most {MOST_NOTIFICATIONS}.")
    return found


def _notification(given: object) -> dict[str, Any]:
    words = mapping("notifications", {"url": given} if isinstance(given, str) else given, NOTIFICATION_WORDS)
    url = text("notifications.url", words.get("url"), 2000)
    if not url.startswith(("http://", "https://")):
        raise Invalid(f"notifications.url is {url!r:.60}.", remedy="Give an http or https address.")
    events = [
        text("notifications.events", event) for event in listed("notifications.events", words.get("events", ["*"]))
    ]
    named = {} if words.get("name") is None else {"name": checked_name("notification", words["name"])}
    return {"url": url, "events": events, **named}
