"""What-ifs on a real platform: nothing is imported, what is said is what an import then shows."""

import json
from pathlib import Path

import pytest
import yaml

from millrace.client.documents import TrialReport
from tests.support.platform import RunningPlatform, record
from tests.support.waiting import wait_until

IDS = "id,onu,speed\n" + "".join(f"{n},22227716426181{n:07d},{n}.5\n" for n in range(1000))


@pytest.fixture(scope="module")
def target(platform: RunningPlatform) -> str:
    fields = (("id", "int"), ("onu", "int"), ("speed", "double"))
    return platform.declare("whatif", record("speeds", *fields, key=("id",)))


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    path = tmp_path / "ids.csv"
    path.write_text(IDS)
    return path


def test_validate_tells_what_would_fit_and_imports_nothing(platform: RunningPlatform, target: str, ids: Path) -> None:
    before = platform.client.imports.list(limit=1)
    ran = platform.cli("validate", str(ids), "--table", target)
    assert ran.returncode == 1, ran.stderr
    assert "1,000 rows read, 0 would pass, 1,000 would fail" in ran.stdout
    assert "onu is declared int; decimal(21,0) or string would take every value." in ran.stdout
    assert platform.client.imports.list(limit=1) == before


def test_what_validates_with_a_new_declaration_then_imports(
    platform: RunningPlatform, target: str, ids: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new.yaml"
    new.write_text(yaml.safe_dump(record("speeds", ("id", "int"), ("onu", "string"), ("speed", "double"), key=("id",))))
    ran = platform.cli("validate", str(ids), "--table", target, "--with", str(new), "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["rows"] == {"read": 1000, "passed": 1000, "failed": 0}
    still = platform.cli("validate", str(ids), "--table", target)
    assert still.returncode == 1, still.stderr


def test_the_last_chunks_of_a_table_are_judged_again(platform: RunningPlatform, target: str, ids: Path) -> None:
    """The log is trimmed behind the checkpoints, so a chunk may be gone when it is asked for: then one more is sent."""
    tenant, table = target.split("/")
    fixed = record(table, ("id", "int"), ("onu", "string"), ("speed", "double"), key=("id",))

    def said() -> TrialReport | None:
        assert platform.send(target, ids)["rows"]["rejected"] == 1000
        report = platform.client.whatif.last_chunks(tenant, table, 1, declaration=fixed)
        return report if report["chunks"] else None

    found: list[TrialReport] = []
    wait_until(lambda: found.append(report) or True if (report := said()) else False, 120, "a chunk still in the log")
    assert found[0]["rows"] == {"read": 1000, "passed": 1000, "failed": 0}
    assert found[0]["looked_everywhere"]


def test_what_infer_proposes_is_applied_and_takes_every_row(
    platform: RunningPlatform, ids: Path, tmp_path: Path
) -> None:
    out = tmp_path / "inferred.yaml"
    assert platform.cli("infer", str(ids), "--name", "inferred", "--out", str(out)).returncode == 0
    applied = platform.cli("apply", "-f", str(out), "--tenant", "whatif")
    assert applied.returncode == 0, applied.stderr
    ended = platform.send("whatif/inferred", ids)
    assert ended["rows"] == {"read": 1000, "accepted": 1000, "rejected": 0, "ignored": 0}
    counted = platform.client.query('select count(*), max("onu") from whatif.inferred')
    assert counted["rows"][0][0] == 1000
    assert str(counted["rows"][0][1]).startswith("222277164261810000999")


def test_what_a_table_keeps_is_judged_by_another_declaration_and_stays_sealed(
    platform: RunningPlatform, ids: Path, tmp_path: Path
) -> None:
    platform.client.tenants.apply("kept", {"client": "kept", "encryption": True})
    fields = (("id", "int"), ("onu", "int"), ("speed", "double"))
    document = {**record("speeds", *fields, key=("id",)), "keep_raw_days": 3}
    platform.client.tables.apply("kept", "speeds", document)
    ran = platform.cli("import", "kept/speeds", str(ids))
    assert "1,000 rejected" in ran.stdout + ran.stderr
    new = tmp_path / "new.yaml"
    new.write_text(yaml.safe_dump(record("speeds", ("id", "int"), ("onu", "string"), ("speed", "double"), key=("id",))))
    judged = platform.cli("validate", "--since", "1h", "--table", "kept/speeds", "--with", str(new), "--json")
    assert judged.returncode == 0, judged.stderr
    report = json.loads(judged.stdout)
    assert (report["rows"], report["missing_chunks"]) == ({"read": 1000, "passed": 1000, "failed": 0}, 0)
    assert platform.cli("validate", "--since", "1h", "--table", "kept/speeds").returncode == 1
    [chunk] = platform.home.raw_chunks("kept", "speeds").rglob("*.chunk")
    assert b"2222771642618100" not in chunk.read_bytes()

    chunk.unlink()
    missing = platform.cli("validate", "--since", "1h", "--table", "kept/speeds")
    assert "1 chunks of that time are missing" in missing.stderr
