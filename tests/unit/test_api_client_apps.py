"""Which tenants the ingestion managers tend."""

from pathlib import Path

from millrace.api.routes.apps import tenants_with_apps
from millrace.model.kube_names import dns_name
from millrace.model.ops.tenants import DefineTenant
from millrace.settings import KubernetesSettings
from tests.support.small_server import SmallPlatform


def test_those_with_a_program_and_with_an_image_in_the_settings_those_with_a_schedule(tmp_path: Path) -> None:
    platform = SmallPlatform(tmp_path, ())
    app, cron = {"app": {"command": ["./x"]}}, {"schedule": {"cron": "0 * * * *"}}
    for name, agreement in {"plain": {}, "with_app": app, "seed_002": cron}.items():
        platform.apply(DefineTenant(name, agreement={"client": name, **agreement}))
    with platform.store.read() as connection:
        own = tenants_with_apps(connection, KubernetesSettings())
        every = tenants_with_apps(connection, KubernetesSettings(app_image="apps/{tenant}:1"))
    platform.store.close()
    assert [one["tenant"] for one in own] == ["with_app"]
    assert [(one["tenant"], one["agreement"]["app"]) for one in every] == [
        ("seed_002", {"image": f"apps/{dns_name('seed_002')}:1"}),
        ("with_app", {"command": ["./x"]}),
    ]
