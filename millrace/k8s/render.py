"""Agreements in, manifests out, in the order in which a cluster wants them. Pure: the same agreement, the same manifests."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from millrace.k8s.names import Names
from millrace.k8s.pods import image_of
from millrace.k8s.surroundings import anchor, namespace, network_policy, resource_quota, service_account, volume_claim
from millrace.k8s.workloads import autoscaler, cron_job, deployment
from millrace.model.agreement import Agreement, App
from millrace.model.errors import Clash
from millrace.settings import KubernetesSettings

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rendered:
    """All manifests of one tenant; `notes` say what Kubernetes will not do as agreed."""

    names: Names
    manifests: tuple[Manifest, ...]
    notes: tuple[str, ...] = ()


def render(agreement: Agreement, settings: KubernetesSettings) -> list[Manifest]:
    """Nothing for a tenant without a container image."""
    names = Names(agreement.tenant, settings.cell, settings.namespace_prefix)
    apps = [(one, image) for one in _by_app(agreement) if (image := image_of(one, settings)) is not None]
    if not apps:
        return []
    return [
        namespace(names),
        anchor(names),
        service_account(names, settings),
        network_policy(names, settings),
        resource_quota([one for one, _ in apps], names, settings),
        volume_claim(agreement, names, settings),
        *(
            manifest
            for one, image in apps
            for manifest in _workload(one, image, _names_of(agreement, one, names), settings)
        ),
    ]


def _by_app(agreement: Agreement) -> tuple[Agreement, ...]:
    """One agreement for each app; a tenant that names none may have the one of the settings."""
    return agreement.by_app() or (agreement,)


def _names_of(agreement: Agreement, one: Agreement, names: Names) -> Names:
    return replace(names, app=one.app.name) if agreement.apps and one.app is not None else names


def _workload(agreement: Agreement, image: str, names: Names, settings: KubernetesSettings) -> list[Manifest]:
    app = agreement.app
    if app is None or app.mode == "batch":
        schedule = agreement.schedule
        return [] if schedule is None else [cron_job(agreement, schedule, image, names, settings)]
    scaled = [] if app.max_replicas is None else [autoscaler(app, names)]
    return [deployment(agreement, image, names, settings), *scaled]


def stopped(agreement: Agreement) -> Agreement:
    """The same with nothing running, for a tenant that is leaving and may come back: its files wait."""
    if agreement.apps:
        return replace(agreement, apps=tuple(map(_stopped, agreement.apps)))
    return replace(agreement, app=_stopped(agreement.app or App()))


def _stopped(app: App) -> App:
    return replace(app, replicas=0, min_replicas=None, max_replicas=None)


def render_all(agreements: Iterable[Agreement], settings: KubernetesSettings) -> list[Rendered]:
    """By tenant; refuses two that would share a namespace."""
    rendered: dict[str, Rendered] = {}
    for agreement in sorted(agreements, key=lambda one: one.tenant):
        names = Names(agreement.tenant, settings.cell, settings.namespace_prefix)
        if names.namespace in rendered:
            raise Clash(
                f"{rendered[names.namespace].names.tenant!r} and {agreement.tenant!r} both want {names.namespace}.",
                remedy="Give each tenant one agreement.",
            )
        notes = tuple(_all_notes(agreement, settings))
        rendered[names.namespace] = Rendered(names, tuple(render(agreement, settings)), notes)
    return list(rendered.values())


def _all_notes(agreement: Agreement, settings: KubernetesSettings) -> Iterable[str]:
    for one in _by_app(agreement):
        of_app = f"app {one.app.name}: " if agreement.apps and one.app is not None else ""
        yield from (f"{of_app}{note}" for note in _notes(one, settings))


def _notes(agreement: Agreement, settings: KubernetesSettings) -> Iterable[str]:
    app, schedule = agreement.app, agreement.schedule
    streams = app is not None and app.mode == "stream"
    if image_of(agreement, settings) is None:
        runs = "its app is a local command" if app is not None else "its agreement names no image"
        yield f"nothing is rendered: {runs}; name app.image, or set MILLRACE_K8S__APP_IMAGE"
        return
    if not streams and schedule is None:
        yield "a batch app without a schedule never runs; name schedule, or make app.mode stream"
    if not streams and schedule is not None and schedule.missed == "run_all":
        yield "schedule.missed is run_all; Kubernetes starts only the last run that was missed"
    if not streams and app is not None and app.max_replicas is not None:
        yield "app.autoscale is for streams; a batch app runs in app.replicas"
