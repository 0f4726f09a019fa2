"""The pod of the single-broker overlay, container by container as processes: its probes succeed, and a file goes through."""

from pathlib import Path

import pytest

from millrace.client import Millrace, Submission
from tests.support.platform import record
from tests.support.pod import running_pod

OVERLAY = Path(__file__).parents[2] / "deploy" / "overlays" / "single-broker"
ITEMS = record("items", ("id", "long"), ("name", "string"), key=("id",))

pytestmark = pytest.mark.slow


def test_the_containers_of_the_pod_are_a_platform(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("id,name\n1,a\n2,b\n")
    with running_pod(OVERLAY, tmp_path / "home") as pod, Millrace(pod.url, "mr_pod") as client:
        client.apply_tenant("acme", {"client": "acme"})
        client.apply_table("acme", "items", ITEMS)
        began = client.upload_file(tmp_path / "items.csv", Submission("acme", "items"))
        ended = client.wait(began["id"])
        assert (ended["state"], ended["rows"]["accepted"]) == ("completed", 2)
        assert client.json("GET", "/v1/health")["status"] == "ok"
        assert pod.is_well()
