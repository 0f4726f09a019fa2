"""The pod of the single-broker overlay, container by container as processes: its probes succeed, and a file goes through."""

from pathlib import Path

import pytest

from millrace.client import Millrace, Submission
from tests.support.platform import record
from tests.support.pod import running_pod
from tests.support.waiting import wait_until

OVERLAY = Path(__file__).parents[2] / "deploy" / "overlays" / "single-broker"
ITEMS = record("items", ("id", "long"), ("name", "string"), key=("id",))
SECONDS = 90.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_containers_of_the_pod_are_a_platform(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("id,name\n1,a\n2,b\n")
    with running_pod(OVERLAY, tmp_path / "home") as pod, Millrace(pod.url, "mr_pod") as client:
        client.tenants.apply("acme", {"client": "acme"})
        client.tables.apply("acme", "items", ITEMS)
        began = client.imports.send_file(tmp_path / "items.csv", Submission("acme", "items"))
        ended = client.imports.wait(began["id"], timeout=SECONDS)
        assert (ended["state"], ended["rows"]["accepted"]) == ("completed", 2)
        assert client.json("GET", "/v1/health")["status"] == "ok"
        client.tenants.apply("acme", {"client": "acme", "app": {"image": "apps/acme:1", "mode": "stream"}})
        out = pod.home / "sources" / "acme" / "out"
        wait_until(out.is_dir, SECONDS, "the managers to make the app's folders")
        # As the app's pod would, which sees the same folder.
        (out / ".more").write_text("id,name\n3,c\n")
        (out / ".more").rename(out / "more.csv")
        reports = pod.home / "handled" / "acme" / "done"
        wait_until(lambda: list(reports.rglob("more.csv.report.json")), SECONDS, "the app's file to be imported")
        assert client.query("select count(*) from acme.items")["rows"] == [[3]]
        assert pod.is_well()
        assert pod.starts["data-plane"] == pod.starts["manager"] == 1
