"""Which tenants the ingestion managers tend, and what the API does with their programs' folders and runs."""

from pathlib import Path

import pytest

from millrace.api.declarations.default_app import DefaultApp
from millrace.api.routes.apps import tenants_with_apps
from millrace.exchange.apps import AppsReport
from millrace.model.kube_names import dns_name
from millrace.model.ops.tenants import DefineTenant
from millrace.settings import KubernetesSettings
from millrace.staging.runs import Run, RunFolder
from tests.support.small_server import SmallPlatform
from tests.support.whole_app import TOKEN, whole_app


def test_those_with_a_program_and_with_an_image_in_the_settings_those_with_a_schedule(tmp_path: Path) -> None:
    platform = SmallPlatform(tmp_path, ())
    app, cron = {"app": {"command": ["./x"]}}, {"schedule": {"cron": "0 * * * *"}}
    for name, agreement in {"plain": {}, "with_app": app, "seed_002": cron}.items():
        platform.apply(DefineTenant(name, agreement={"client": name, **agreement}))
    with platform.store.read() as connection:
        own = tenants_with_apps(connection, DefaultApp(KubernetesSettings()))
        every = tenants_with_apps(connection, DefaultApp(KubernetesSettings(app_image="apps/{tenant}:1")))
        staged = tenants_with_apps(connection, DefaultApp(KubernetesSettings(), stages=True))
    platform.store.close()
    assert [one["tenant"] for one in own] == ["with_app"]
    assert [(one["tenant"], one["agreement"]["app"]) for one in every] == [
        ("seed_002", {"image": f"apps/{dns_name('seed_002')}:1"}),
        ("with_app", {"command": ["./x"]}),
    ]
    assert [(one["tenant"], one["agreement"]["app"]) for one in staged] == [
        ("seed_002", {"command": ["./pass_through.sh"], "uploads_first": True}),
        ("with_app", {"command": ["./x"], "uploads_first": True}),
    ]


AUTH = {"Authorization": f"Bearer {TOKEN}"}
LOCAL = {"app": {"command": ["./x"], "uploads_first": True}}


def test_a_run_that_could_not_be_confined_is_refused_at_once(tmp_path: Path) -> None:
    with whole_app(tmp_path) as (platform, client):
        platform.apply(DefineTenant("acme", agreement={"client": "acme", **LOCAL}))
        confinement = {"kind": "refused", "warning": "Set MILLRACE_APPS__UNCONFINED."}
        platform.exchange.apps.report(AppsReport(confinement, "rlimits", "inotify", {}))
        answer = client.post("/v1/tenants/acme/app/run", headers=AUTH)
        assert (answer.status_code, answer.json()["code"]) == (409, "not_confined")
        assert "MILLRACE_APPS__UNCONFINED" in answer.text
        assert not platform.exchange.apps.is_asked("acme")


@pytest.mark.parametrize("name", ["in", "in/.up"])
def test_an_upload_follows_no_link_of_the_program(tmp_path: Path, name: str) -> None:
    """The whole folder, or every name in it, is a link to another tenant's log."""
    with whole_app(tmp_path) as (platform, client):
        platform.apply(DefineTenant("acme", agreement={"client": "acme", **LOCAL}))
        staging = platform.exchange.app_folders("acme")
        staging.make()
        other = tmp_path / "lake" / "other" / "t" / "_delta_log"
        other.mkdir(parents=True)
        if name == "in":
            staging.inbox.rmdir()
            staging.inbox.symlink_to(other)
        else:
            (staging.inbox / "0.json").symlink_to(other / "0.json")
        answer = client.post("/upload-file/acme", files={"file": ("0.json", b"{}")}, headers=AUTH)
        assert (answer.status_code, answer.json()["state"]) == (202, "staged")
        assert list(other.iterdir()) == []
        listed = client.get("/tenant/acme", headers=AUTH).json()["in"]
        assert [file["bytes"] for file in listed] == [2]


def test_what_the_program_put_in_the_place_of_its_folder_is_named(tmp_path: Path) -> None:
    with whole_app(tmp_path) as (platform, client):
        platform.apply(DefineTenant("acme", agreement={"client": "acme", **LOCAL}))
        staging = platform.exchange.app_folders("acme")
        staging.make()
        staging.inbox.rmdir()
        staging.inbox.write_text("in the way")
        answer = client.post("/upload-file/acme", files={"file": ("a.csv", b"{}")}, headers=AUTH)
        assert (answer.status_code, answer.json()["code"]) == (409, "no_folder")
        assert staging.inbox.read_text() == "in the way"


TWO = {
    "schedule": "@hourly",
    "apps": [
        {"name": "clean", "command": ["./clean"], "uploads_first": True},
        {"name": "merge", "command": ["./merge"], "uploads_first": True, "schedule": "@daily"},
    ],
}


def test_one_of_several_apps_is_named(tmp_path: Path) -> None:
    with whole_app(tmp_path) as (platform, client):
        platform.apply(DefineTenant("acme", agreement={"client": "acme", **TWO}))
        listed = client.get("/v1/apps", headers=AUTH).json()["items"]
        assert [(item["tenant"], item["app"], item["agreement"]["schedule"]) for item in listed] == [
            ("acme", "clean", "@hourly"), ("acme", "merge", "@daily"),
        ]  # fmt: skip
        unnamed = client.post("/v1/tenants/acme/app/run", headers=AUTH)
        assert (unnamed.status_code, unnamed.json()["code"]) == (422, "which_app")
        assert "clean, merge" in unnamed.text
        assert client.post("/v1/tenants/acme/app/run?app=merge", headers=AUTH).json()["app"] == "merge"
        assert platform.exchange.apps.asked() == {"acme.merge"}
        assert client.get("/v1/tenants/acme/app?app=clean", headers=AUTH).json()["schedule"] == "@hourly"
        assert client.get("/v1/tenants/acme/app?app=other", headers=AUTH).status_code == 404


def test_runs_of_unknown_tenants_and_apps_are_missing(tmp_path: Path) -> None:
    with whole_app(tmp_path) as (platform, client):
        platform.apply(DefineTenant("acme", agreement={"client": "acme", **TWO}))
        stranger = client.get("/v1/tenants/acne/app/runs", headers=AUTH)
        assert (stranger.status_code, stranger.json()["code"]) == (404, "no_tenant")
        typo = client.get("/v1/tenants/acme/app/runs?app=mergee", headers=AUTH)
        assert (typo.status_code, typo.json()["code"]) == (404, "no_app")
        assert "clean, merge" in typo.text
        assert client.get("/v1/tenants/acme/app/runs?app=merge", headers=AUTH).json() == {"items": []}


def test_uploads_and_runs_belong_to_one_of_several_apps(tmp_path: Path) -> None:
    with whole_app(tmp_path) as (platform, client):
        platform.apply(DefineTenant("acme", agreement={"client": "acme", **TWO}))
        unnamed = client.post("/upload-file/acme", files={"file": ("a.csv", b"1")}, headers=AUTH)
        assert (unnamed.status_code, unnamed.json()["code"]) == (422, "which_app")
        named = client.post("/upload-file/acme", files={"file": ("a.csv", b"1")}, data={"app": "merge"}, headers=AUTH)
        assert (named.status_code, named.json()["app"]) == (202, "merge")
        [waiting] = client.get("/tenant/acme", headers=AUTH).json()["in"]
        assert (waiting["file"], waiting["app"]) == ("a.csv", "merge")
        runs = []
        for number, app in enumerate(("clean", "merge", "clean")):
            staging = platform.exchange.app_folders("acme", app)
            staging.make()
            run = Run(f"run_{number:026d}", "acme", "batch", "succeeded", "asked", 1, "2026-01-01", app=app)
            RunFolder(staging.runs / run.id).write(run)
            runs.append(run.id)
        listed = client.get("/v1/tenants/acme/app/runs", headers=AUTH).json()["items"]
        assert [run["id"] for run in listed] == runs[::-1]
        own = client.get("/v1/tenants/acme/app/runs?app=clean", headers=AUTH).json()["items"]
        assert [run["id"] for run in own] == [runs[2], runs[0]]
        assert client.get(f"/v1/tenants/acme/app/runs/{runs[1]}", headers=AUTH).json()["app"] == "merge"
