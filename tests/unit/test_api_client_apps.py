"""Which tenants the ingestion managers tend, and what the API does with their programs' folders and runs."""

from pathlib import Path

import pytest

from millrace.api.declarations.default_app import DefaultApp
from millrace.api.routes.apps import tenants_with_apps
from millrace.exchange.apps import AppsReport
from millrace.model.kube_names import dns_name
from millrace.model.ops.tenants import DefineTenant
from millrace.settings import KubernetesSettings
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
