"""What the server knows of client apps: agreements that name one, what the managers last said, who may name commands."""

from typing import Any

from sqlalchemy import Connection, Row, select

from millrace.auth.tokens import Caller
from millrace.exchange.apps import AppBoard, AppsReport
from millrace.k8s.pods import usual_image
from millrace.model.agreement import Agreement, App
from millrace.model.errors import Missing, Refused
from millrace.settings import KubernetesSettings
from millrace.store import tables as t
from millrace.store.agreements import known_agreement
from millrace.store.tables import departures

# The managers report every second. After this time they count as absent.
SILENT_SECONDS = 15.0


def refuse_local_command(caller: Caller, agreement: Agreement) -> None:
    """A command runs on the platform's own machine, so only an operator may choose it."""
    if agreement.app is not None and agreement.app.runs_here and not caller.is_admin:
        raise Refused(
            "app.command is for the platform's operator to declare.",
            remedy="Name an image, or ask the operator to apply the agreement.",
            code="operators_only",
        )


def tenants_with_apps(connection: Connection, k8s: KubernetesSettings) -> list[dict[str, Any]]:
    """Those that have not left, whose agreement names a program, or has a schedule where the settings name an image."""
    wanted = select(t.tenants).outerjoin(departures, departures.c.tenant == t.tenants.c.name)
    named = t.tenants.c.agreement["app"].as_string().is_not(None)
    if k8s.app_image is not None:
        named |= t.tenants.c.agreement["schedule"].as_string().is_not(None)
    rows = connection.execute(wanted.where(named, departures.c.tenant.is_(None)).order_by(t.tenants.c.name))
    return [{"tenant": row.name, "revision": row.revision, "agreement": _complete(row, k8s)} for row in rows]


def _complete(row: "Row[Any]", k8s: KubernetesSettings) -> dict[str, Any]:
    agreement: dict[str, Any] = row.agreement
    return agreement if "app" in agreement else {**agreement, "app": {"image": usual_image(row.name, k8s)}}


def agreement_with_app(connection: Connection, tenant: str) -> tuple[Agreement, App]:
    agreement = known_agreement(connection, tenant)
    if agreement.app is None:
        raise Missing(f"{tenant} has no client app.", remedy="Declare one as `app` in its agreement.", code="no_app")
    return agreement, agreement.app


def last_report(apps: AppBoard) -> AppsReport | None:
    """The last report of the ingestion managers, if it is recent."""
    report = apps.last()
    return report if report is not None and report.age_seconds < SILENT_SECONDS else None


def runs_here(agreement: Agreement) -> str:
    """What of an agreement a platform on one machine does not do, in a sentence; nothing if it does all."""
    app = agreement.app
    if app is None:
        return ""
    if not app.runs_here:
        return "It has an image: it runs on Kubernetes, not here; its files are imported as they are finished."
    if app.replicas > 1 or (app.max_replicas or 1) > 1:
        return "Several replicas run on Kubernetes; here one does."
    if app.mode == "batch" and agreement.schedule is None:
        return "It has no schedule: it runs when somebody asks for it."
    return ""
