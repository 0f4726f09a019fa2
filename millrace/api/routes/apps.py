"""Client apps: which there are, how they do, their runs with files and logs. The managers write it; here it is shown."""

from contextlib import suppress
from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection, select

from millrace.api.declarations.default_app import DefaultApp
from millrace.api.deps import AppBoardDep, AppFoldersDep, DefaultAppDep, SealingDep, StoreDep, guarded_router
from millrace.api.documents.tables import table_names
from millrace.auth.access import allows
from millrace.exchange.app_folders import AppFolders, app_slug
from millrace.exchange.apps import AppBoard, AppsReport
from millrace.model.agreement import THE_APP, Agreement, App
from millrace.model.declared_documents import app_documents
from millrace.model.errors import Clash, Invalid, Missing
from millrace.model.roles import OPERATOR, READER, VIEWER, WRITER
from millrace.staging.runs import RunFolder, run_folder, run_folders
from millrace.store import tables as t
from millrace.store.agreements import known_agreement
from millrace.store.tables import departures

router = guarded_router(prefix="/v1", tags=["client apps"])
MOST_RUNS = 200
MOST_FILES = 1000
MOST_TAIL_BYTES = 64 << 20
# The managers report every second. After this time they count as absent.
SILENT_SECONDS = 15.0
AppName = Annotated[str | None, Query(description="Which of the tenant's apps.")]
_BACKEND = ("at", "confinement", "limits", "watching")


@router.get("/apps")
@allows(OPERATOR)
def list_apps(store: StoreDep, apps: AppBoardDep, default_app: DefaultAppDep) -> dict[str, Any]:
    """Every client app, as the ingestion managers read it, and how apps run on this machine."""
    with store.read() as connection:
        found = tenants_with_apps(connection, default_app)
    report = last_report(apps)
    tended = {} if report is None else report.tenants
    items = [{**one, "status": tended.get(app_slug(one["tenant"], one["app"]))} for one in found]
    backend = None if report is None else {name: getattr(report, name) for name in _BACKEND}
    return {"backend": backend, "items": items}


@router.get("/tenants/{tenant}/app")
@allows(VIEWER)
def show_app(
    tenant: str, store: StoreDep, apps: AppBoardDep, default_app: DefaultAppDep, app: AppName = None
) -> dict[str, Any]:
    """The tenant's client app; if there are several, `app` names one."""
    with store.read() as connection:
        agreement, chosen = agreement_with_app(connection, tenant, default_app, app)
    report = last_report(apps)
    return {
        "tenant": tenant,
        "app": chosen.name,
        "mode": chosen.mode,
        "replicas": chosen.replicas,
        "schedule": None if agreement.schedule is None else agreement.schedule.cron,
        "note": runs_here(agreement, chosen),
        "status": None if report is None else report.tenants.get(app_slug(tenant, chosen.name)),
        "confinement": None if report is None else report.confinement,
    }


@router.post("/tenants/{tenant}/app/run", status_code=202)
@allows(WRITER, audited=True)
def ask_for_run(
    tenant: str, store: StoreDep, apps: AppBoardDep, default_app: DefaultAppDep, app: AppName = None
) -> dict[str, Any]:
    """Asks for a run of a batch app beside its schedule: as soon as none is under way. If there are several apps, `app` names
    one."""
    with store.read() as connection:
        _, chosen = agreement_with_app(connection, tenant, default_app, app)
    if chosen.mode != "batch" or not chosen.runs_here:
        raise Clash(
            f"The client app {chosen.name} of {tenant} is not run on request.",
            remedy="A stream app runs all the time; an image runs on Kubernetes.",
            code="not_on_request",
        )
    report = last_report(apps)
    if report is not None and report.confinement.get("kind") == "refused":
        raise Clash(
            f"The client app of {tenant} is not run.", remedy=report.confinement["warning"], code="not_confined"
        )  # fmt: skip
    apps.ask(tenant, chosen.name)
    return {"tenant": tenant, "app": chosen.name, "asked": True}


@router.get("/tenants/{tenant}/app/runs")
@allows(VIEWER)
def list_runs(
    tenant: str,
    store: StoreDep,
    app_folders: AppFoldersDep,
    default_app: DefaultAppDep,
    limit: Annotated[int, Query(ge=1, le=MOST_RUNS)] = 20,
    app: AppName = None,
) -> dict[str, Any]:
    """The newest first, of all the tenant's client apps or of the one that `app` names."""
    with store.read() as connection:
        agreement = default_app.completed(known_agreement(connection, tenant))
    every = app_folders.all(tenant)
    named = [one.app.name for one in agreement.by_app() if one.app is not None]
    wanted = every if app is None else [one for one in every if one.app == app]
    if not wanted and app not in named:
        had = ", ".join(dict.fromkeys([*named, *(one.app for one in every[1:])]))
        remedy = f"It has {had}." if had else "Declare one as `app` in its agreement."
        raise Missing(f"{tenant} has no client app {app!r:.80}.", remedy=remedy, code="no_app")
    found = [folder for staging in wanted for folder in run_folders(staging)[:limit]]
    newest = sorted(found, key=lambda folder: folder.path.name, reverse=True)[:limit]
    return {"items": [folder.document() for folder in newest]}


@router.get("/tenants/{tenant}/app/runs/{run}")
@allows(VIEWER)
def show_run(tenant: str, run: str, app_folders: AppFoldersDep) -> dict[str, Any]:
    folder = _run_of(app_folders, tenant, run)
    return {**folder.document(), "logs": folder.logs()}


@router.get("/tenants/{tenant}/app/runs/{run}/files")
@allows(READER)
def list_files(tenant: str, run: str, app_folders: AppFoldersDep) -> dict[str, Any]:
    """What became of the last files of the run, in the order in which they ended."""
    return {"items": _run_of(app_folders, tenant, run).reports()[-MOST_FILES:]}


@router.get("/tenants/{tenant}/app/runs/{run}/log")
@allows(READER, audited=True)
def show_log(
    tenant: str,
    run: str,
    app_folders: AppFoldersDep,
    sealing: SealingDep,
    name: str = "stdout.log",
    tail: Annotated[int, Query(ge=0, le=MOST_TAIL_BYTES)] = 1 << 20,
) -> StreamingResponse:
    """The last bytes of what the program wrote to standard output or error, or to a log file of its own."""
    folder = _run_of(app_folders, tenant, run)
    said = folder.log_tail(name, tail, sealing.keyring)
    return StreamingResponse(said, media_type="text/plain; charset=utf-8")


def _run_of(app_folders: AppFolders, tenant: str, run: str) -> RunFolder:
    """A run of any of the tenant's client apps."""
    first, *others = app_folders.all(tenant)
    for staging in others:
        with suppress(Missing):
            return run_folder(staging, run)
    return run_folder(first, run)


def tenants_with_apps(connection: Connection, default_app: DefaultApp) -> list[dict[str, Any]]:
    """The programs of tenants that have not left: those that an agreement names, and where it has a schedule and names none,
    the one that the settings name."""
    wanted = select(t.tenants).outerjoin(departures, departures.c.tenant == t.tenants.c.name)
    agreed = t.tenants.c.agreement
    named = agreed["app"].as_string().is_not(None) | agreed["apps"].as_string().is_not(None)
    if default_app.exists:
        named |= t.tenants.c.agreement["schedule"].as_string().is_not(None)
    rows = connection.execute(wanted.where(named, departures.c.tenant.is_(None)).order_by(t.tenants.c.name)).all()
    tables = table_names(connection, [row.name for row in rows])
    return [
        {
            "tenant": row.name,
            "app": one["app"].get("name", THE_APP),
            "revision": row.revision,
            "agreement": one,
            "tables": tables.get(row.name, []),
        }
        for row in rows
        for one in app_documents(default_app.complete(row.name, row.agreement))
    ]


def agreement_with_app(
    connection: Connection, tenant: str, default_app: DefaultApp, name: str | None = None
) -> tuple[Agreement, App]:
    """With one app: the one of this name, or the only one."""
    agreement = default_app.completed(known_agreement(connection, tenant))
    known = {one.app.name: one for one in agreement.by_app() if one.app is not None}
    if not known:
        raise Missing(f"{tenant} has no client app.", remedy="Declare one as `app` in its agreement.", code="no_app")
    if name is None and len(known) > 1:
        raise Invalid(
            f"{tenant} has {len(known)} client apps.", remedy=f"Name one: {', '.join(known)}.", code="which_app"
        )
    chosen = next(iter(known.values())) if name is None else known.get(name)
    if chosen is None or chosen.app is None:
        raise Missing(f"{tenant} has no client app {name!r:.80}.", remedy=f"It has {', '.join(known)}.", code="no_app")
    return chosen, chosen.app


def last_report(apps: AppBoard) -> AppsReport | None:
    """The last report of the ingestion managers, if it is recent."""
    report = apps.last()
    return report if report is not None and report.age_seconds < SILENT_SECONDS else None


def runs_here(agreement: Agreement, app: App) -> str:
    """What of an agreement a platform on one machine does not do, in a sentence; nothing if it does all."""
    if not app.runs_here:
        return "It has an image: it runs on Kubernetes, not here; its files are imported as they are finished."
    if app.mode == "stream" and (app.replicas > 1 or (app.max_replicas or 1) > 1):
        return "Several replicas of a stream app run on Kubernetes; here one does."
    if app.mode == "batch" and agreement.schedule is None:
        return "It has no schedule: it runs when somebody asks for it."
    return ""
