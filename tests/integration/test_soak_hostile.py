"""The soak's hostile client app under the real managers: it makes all its attacks, reaches nothing, and all of it is told."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from checker.hostile import program
from checker.hostile.places import changed, leaks, looks, plant
from checker.hostile.rounds import DISK_MB, ENVIRON
from millrace.model.errors import Missing
from tests.support.managers import Managers, Tenant, managers
from tests.support.waiting import wait_until

BUILD = Path(__file__).parents[2] / "build"
CANARIES = {"soak-a": "canary-of-a"}
SECONDS = 60.0


@pytest.fixture
def running() -> Iterator[Managers]:
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-hostile-", dir=BUILD) as folder:
        Path(folder).chmod(0o755)
        with managers(Path(folder) / "home", ENVIRON) as started:
            yield started


def attacks(tenant: Tenant) -> list[dict[str, Any]]:
    found = []
    for run in tenant.runs():
        with suppress(Missing):
            found += [json.loads(line) for line in tenant.output(run).splitlines() if line.endswith("}")]
    return found


@pytest.mark.slow
def test_the_hostile_program_does_all_its_attacks_and_reaches_nothing(running: Managers) -> None:
    home = running.home
    planted = plant(home.root, CANARIES)
    before = looks(home.root, planted)
    home.programs.mkdir(exist_ok=True)
    shutil.copy(program.__file__, home.programs / "hostile.py")
    folders = sorted({str(path.parent) for path in planted[1:]})
    plan = {
        "seconds": 3, "secret": [*folders, str(planted[0]), str(home.client)],
        "elsewhere": [str(home.root), *folders, "/etc"],
        "ports": [["127.0.0.1", int(running.fake.url.rpartition(":")[2])]], "processes": [running.process.pid],
        "fill_mb": DISK_MB * 2,
    }  # fmt: skip
    tenant = Tenant(running, "hostile")
    tenant.declare(sys.executable, "hostile.py", json.dumps(plan), mode="stream")
    others = set(program.ATTACKS) - {"fill"}
    wait_until(lambda: others <= {one["attack"] for one in attacks(tenant)}, SECONDS, "all its attacks")
    wait_until(lambda: len(tenant.runs()) > 1, SECONDS, "it to be ended for its disk, and started again")
    running.withdraw("hostile")
    wait_until(lambda: tenant.running() is None, SECONDS, "it to be ended")
    assert {what for one in attacks(tenant) for what in one["reached"]} == set()
    assert changed(before, looks(home.root, planted)) == []
    assert leaks(home.root, "hostile", CANARIES.values()) == []
    assert tenant.imported(), "its honest files are imported"
    assert running.process.poll() is None
