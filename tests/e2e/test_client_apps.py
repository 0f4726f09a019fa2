"""Both ingestion managers on a real platform: uploads that a program sees first, runs, streams, reports, logs, doctor."""

import os
import shutil
from pathlib import Path
from typing import Any

import polars as pl

from millrace.client import Millrace
from tests.support.platform import RunningPlatform, record
from tests.support.waiting import wait_until

SAMPLES = Path(__file__).parents[2] / "apps"
ITEMS = record("items", ("id", "long"), ("name", "string"), key=("id",))
NOTES = record("notes", ("id", "long"), ("text", "string"), key=("id",))
SECONDS = 60.0


def install(platform: RunningPlatform, name: str) -> str:
    """A sample where the platform looks for programs; how an agreement names it."""
    platform.home.programs.mkdir(exist_ok=True)
    shutil.copy(SAMPLES / name, platform.home.programs / name)
    return f"./{name}"


def upload(platform: RunningPlatform, tenant: str, name: str, text: str) -> dict[str, Any]:
    answer: dict[str, Any] = platform.client.json(
        "POST", f"/upload-file/{tenant}", files={"file": (name, text.encode())}
    )
    return answer


def rows(platform: RunningPlatform, tenant: str, table: str) -> list[tuple[Any, ...]]:
    location = platform.client.tables.show(tenant, table)["location"]
    if not Path(location).exists():
        return []
    return pl.read_delta(location).sort("id").select("id", "name").rows()


def test_a_batch_app_sees_uploads_first_and_its_files_are_one_span(platform: RunningPlatform) -> None:
    client = platform.client
    target = platform.declare("apps_batch", ITEMS)
    client.tables.apply("apps_batch", "notes", NOTES)
    script = (
        'cd "$SOURCE_PATH/$CLIENT_ID" && mkdir -p out/items && for f in in/*.csv; do '
        '[ -e "$f" ] && sed s/draft/final/ "$f" > out/items/.t && mv out/items/.t "out/items/${f#in/}" && rm "$f"; done; '
        "echo 1 > out/nowhere.csv; echo handled"
    )
    app = {"command": ["sh", "-c", script], "uploads_first": True}
    limits = {"limits": {"memory": "256Mi", "cpu": "1"}}
    client.tenants.apply("apps_batch", {"app": app, "resources": limits, "encryption": True})
    for number in (1, 2):
        answer = upload(platform, "apps_batch", f"{number}.csv", f"id,name\n{number},draft\nx,bad\n")
        assert (answer["state"], answer["file"]) == ("staged", f"{number}.csv")
    waiting = client.json("GET", "/tenant/apps_batch")
    assert [one["file"] for one in waiting["in"]] == ["1.csv", "2.csv"]
    assert waiting["files"] == []

    ran = platform.cli("app", "run", "apps_batch", "--wait")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    [run] = client.apps.runs("apps_batch")
    assert (run["state"], run["files"]) == ("succeeded", {"done": 2, "failed": 1})
    assert run["rows"] == {"read": 4, "accepted": 2, "rejected": 2, "ignored": 0}
    assert rows(platform, *target.split("/")) == [(1, "final"), (2, "final")]
    span = client.json("GET", f"/v1/tenants/apps_batch/spans/{run['spans'][0]}", params={"wait": 10})
    assert (span["state"], span["imports"]) == ("ended", 2)

    reports = {one["file"]: one for one in client.apps.files("apps_batch", run["id"])}
    assert reports["nowhere.csv"]["error"]["code"] == "no_table"
    assert "items, notes" in reports["nowhere.csv"]["error"]["remedy"]
    assert reports["items/1.csv"]["rows"]["rejected"] == 1
    assert platform.cli("app", "logs", "apps_batch").stdout == "handled\n"
    assert client.json("GET", "/tenant/apps_batch")["in"] == []

    told = [event for event in platform.events(tenant="apps_batch") if event["type"].startswith("millrace.app.")]
    assert [event["type"] for event in told] == ["millrace.app.started", "millrace.app.succeeded"]
    assert (told[1]["data"]["rows"], told[1]["data"]["files"]) == (run["rows"], run["files"])
    assert f"millrace.app.succeeded  {run['id']}" in platform.cli("events", "--limit", "500").stdout

    client.tenants.apply("apps_stranger", {})
    stranger = Millrace(client.endpoint.url, client.tokens.create("apps_stranger", tenant="apps_stranger")["token"])
    theirs = "/v1/tenants/apps_batch/app"
    for end in ("", "/runs", *(f"/runs/{run['id']}{of_run}" for of_run in ("", "/files", "/log"))):
        assert stranger.send("GET", theirs + end).status_code == 404, end
    assert stranger.send("POST", f"{theirs}/run").status_code == 404
    assert stranger.send("GET", "/v1/apps").status_code == 403


def test_a_stream_app_carries_files_within_moments_of_their_completion(platform: RunningPlatform) -> None:
    client = platform.client
    target = platform.declare("apps_stream", ITEMS)
    command = install(platform, "pass_through.sh")
    client.tenants.apply(
        "apps_stream", {"app": {"command": [command, "--watch"], "mode": "stream", "uploads_first": True}}
    )
    for number in range(12):
        upload(platform, "apps_stream", f"{number}.csv", f"id,name\n{number},n{number}\n")
    expected = [(number, f"n{number}") for number in range(12)]
    wait_until(lambda: rows(platform, *target.split("/")) == expected, SECONDS, "every file's row")
    [run] = client.apps.runs("apps_stream")
    wait_until(
        lambda: client.apps.show_run("apps_stream", run["id"])["files"] == {"done": 12, "failed": 0}, SECONDS, "reports"
    )
    reports = client.apps.files("apps_stream", run["id"])
    assert len({one["import"] for one in reports}) == 12
    # The managers die and come back; the app goes on, and nothing is imported again.
    platform.part("managers").kill()
    upload(platform, "apps_stream", "12.csv", "id,name\n12,n12\n")
    expected.append((12, "n12"))
    wait_until(lambda: rows(platform, *target.split("/")) == expected, SECONDS, "the row behind the crash")
    imports = client.imports.list(tenant="apps_stream", limit=100)
    assert len([one for one in imports if one.get("file_name")]) == 13
    interrupted = [(run["id"], "interrupted")]
    wait_until(lambda: _failures(platform) == interrupted, SECONDS, "the event of the interrupted run")
    client.tenants.apply("apps_stream", {})
    wait_until(lambda: client.apps.list()["items"] == [] or _stopped(client), SECONDS, "the app to be stopped")


def _failures(platform: RunningPlatform) -> list[tuple[str, str]]:
    told = (event for event in platform.events(tenant="apps_stream") if event["type"] == "millrace.app.failed")
    return [(event["data"]["run"], event["data"]["state"]) for event in told]


def _stopped(client: Any) -> bool:
    return all(item["tenant"] != "apps_stream" for item in client.apps.list()["items"])


def test_how_apart_apps_run_is_said_by_the_doctor(platform: RunningPlatform) -> None:
    said = platform.cli("doctor").stdout
    line = next(line for line in said.splitlines() if "client apps" in line)
    assert line.startswith("ok ")
    assert ("each as a user of its own" if os.geteuid() == 0 else "by user namespaces") in line
    assert "watched by inotify" in line
