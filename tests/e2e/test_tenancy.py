"""Quotas and erasing on a whole platform: what is paced still ends whole, and a name that was erased begins anew."""

import json
import time
from pathlib import Path

from tests.support.platform import RunningPlatform, record

NOTES = record("notes", ("id", "long"), ("text", "string"), key=("id",))


def rows(path: Path, count: int, text: str) -> Path:
    path.write_text("id,text\n" + "".join(f"{number},{text}\n" for number in range(count)))
    return path


def test_an_upload_over_the_rate_is_slowed_down_and_ends_whole(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("slow", NOTES)
    platform.client.tenants.apply("slow", {"client": "slow", "quotas": {"bytes_per_second": "1M"}})
    path = rows(tmp_path / "slow.csv", 100_000, "x" * 25)
    begun = time.monotonic()
    ended = platform.send(target, path)
    assert ended["state"] == "completed"
    assert ended["rows"]["accepted"] == 100_000
    assert time.monotonic() - begun > path.stat().st_size / 1e6 - 1.5, "all but the first second's worth had to wait"
    used = platform.client.usage.show("slow")["days"][0]
    assert (used["rows_accepted"], used["imports"], used["bytes"]) == (100_000, 1, ended["bytes"])


def test_an_erased_tenant_is_gone_and_its_name_begins_anew(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("leaver", NOTES)
    sent = platform.send(target, rows(tmp_path / "first.csv", 100, "first"))
    more = platform.send(target, rows(tmp_path / "more.csv", 10, "more"))
    assert (sent["state"], more["state"]) == ("completed", "completed")
    token = platform.client.tokens.create("leaver-writer", tenant="leaver", role="writer")["token"]
    home = platform.home
    assert home.table("leaver", "notes").is_dir()
    deleted = platform.cli("tenant", "delete", "leaver", "--confirm", "leaver", "--grace-days", "0")
    assert deleted.returncode == 0, deleted.stderr
    erased = platform.cli("--json", "tenant", "erase", "leaver", "--confirm", "leaver")
    assert erased.returncode == 0, erased.stderr
    receipt = json.loads(erased.stdout)
    assert receipt["gone"]["store_rows"]["imports"] >= 3
    assert receipt["gone"]["emptied_sinks"] == ["notes: delta (delta)"]
    assert not (home.lake / "leaver").exists()
    assert token not in erased.stdout
    assert "leaver" not in [tenant["name"] for tenant in platform.client.tenants.list()]
    platform.declare("leaver", NOTES)
    again = platform.send(target, rows(tmp_path / "again.csv", 7, "again"))
    assert again["rows"]["accepted"] == 7
    counted = platform.client.query("select count(*), min(text), max(text) from leaver.notes")
    assert counted["rows"] == [[7, "again", "again"]]
    entries = [entry["action"] for entry in platform.client.audit.list("leaver")]
    assert "POST /v1/tenants/{tenant}/erase" in entries, "the audit log keeps what happened"
