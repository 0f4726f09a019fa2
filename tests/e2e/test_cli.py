"""The commands on a real platform: what scripts rely on."""

import gzip
import json
from pathlib import Path

import pytest

from tests.support.platform import RunningPlatform

EXAMPLES = Path(__file__).parents[2] / "examples"
HEAD = "PROVINCECODE,DEVICEID,IFINDEX,FRAME,SLOT,PORT,ONUINDEX,ONUID,TIME,SPEEDIN,SPEEDOUT\n"
GOOD = "1,10.0.0.1,5,0,1,2,3,{id},2024-01-01 00:00:00,1.5,2.5\n"


@pytest.fixture(scope="module", autouse=True)
def declared(platform: RunningPlatform) -> None:
    ran = platform.cli("apply", "-f", str(EXAMPLES / "client_a"))
    assert ran.returncode == 0, ran.stderr


def test_import_waits_for_the_end_and_tells_it_in_json(platform: RunningPlatform, tmp_path: Path) -> None:
    plain, packed = tmp_path / "onu.csv", tmp_path / "more.csv.gz"
    plain.write_text(HEAD + GOOD.format(id=1) + GOOD.format(id="none"))
    packed.write_bytes(gzip.compress((HEAD + GOOD.format(id=2)).encode()))
    ran = platform.cli("import", "client_a/analytics", str(plain), str(packed), "--json")
    assert ran.returncode == 0, ran.stderr
    first, second = (json.loads(line) for line in ran.stdout.splitlines())
    assert first["rows"] == {"read": 2, "accepted": 1, "rejected": 1, "ignored": 0}
    assert second["rows"]["accepted"] == 1
    assert first["sinks"] == {"delta": {"durable_chunks": 1, "parked_chunks": 0, "refused_rows": 0}}
    assert {"id", "tenant", "table", "state", "chunks", "started_at", "ended_at", "error"} <= first.keys()
    shown = json.loads(platform.cli("status", first["id"], "--json").stdout)
    assert shown["state"] == "completed"
    (rejected,) = (json.loads(line) for line in platform.cli("errors", first["id"], "--json").stdout.splitlines())
    assert (rejected["row"], rejected["line"]) == (2, 3)
    assert rejected["reasons"][0]["column"] == "ONUID"
    out = tmp_path / "rejected.csv"
    assert platform.cli("errors", first["id"], "--out", str(out)).returncode == 0
    assert "none" in out.read_text()


def test_exit_codes(platform: RunningPlatform, tmp_path: Path) -> None:
    bad, mixed = tmp_path / "bad.csv", tmp_path / "mixed.csv"
    bad.write_text(HEAD + GOOD.format(id="none"))
    mixed.write_text(HEAD + GOOD.format(id="none") + GOOD.format(id=9))
    assert platform.cli("import", "client_a/analytics", str(bad)).returncode == 1
    assert platform.cli("import", "client_a/analytics", str(mixed)).returncode == 0
    assert platform.cli("import", "client_a/analytics", str(mixed), "--fail-on-rejects").returncode == 1
    assert platform.cli("import", "client_a/nowhere", str(mixed)).returncode == 1
    assert platform.cli("import", "client_a/analytics").returncode == 2
    assert platform.cli("--home", str(tmp_path / "empty"), "status").returncode == 3


def test_stdin_query_events_and_doctor(platform: RunningPlatform) -> None:
    rows = (HEAD + GOOD.format(id=70) + GOOD.format(id=71)).encode()
    ran = platform.cli("import", "client_a/analytics", "-", "--json", stdin=rows)
    assert ran.returncode == 0, ran.stderr
    ended = json.loads(ran.stdout)
    asked = platform.cli("query", "select count(*) as n from client_a.analytics where ONUID >= 70", "--json")
    assert asked.returncode == 0, asked.stderr
    assert "2" in asked.stdout
    told = platform.cli("events", "--json")
    assert ended["id"] in told.stdout
    examined = platform.cli("doctor")
    assert examined.returncode == 0, examined.stdout + examined.stderr


def test_apply_tells_what_changed_and_what_is_wrong(platform: RunningPlatform, tmp_path: Path) -> None:
    again = platform.cli("apply", "-f", str(EXAMPLES / "client_a"))
    assert again.returncode == 0
    assert "unchanged" in again.stdout.lower()
    broken = tmp_path / "broken.json"
    broken.write_text('{"client": "../evil"}')
    refused = platform.cli("apply", "-f", str(broken))
    assert refused.returncode in (1, 2)
    assert "tenant name" in refused.stderr
    assert "Traceback" not in refused.stderr
