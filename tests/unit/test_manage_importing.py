"""Groups of files on their way into their tables: order, spans that are over too soon, refusals, a platform that is away."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from millrace.client import Millrace, Problem
from millrace.exchange.app_folders import Staging
from millrace.exchange.home import Home
from millrace.exchange.keys import KeyFiles
from millrace.manage import managers, openrun
from millrace.manage.claiming import Claim, changed, close_up, file_of, open_claims, still_open, take
from millrace.manage.importing import ClaimGroup, Importer
from millrace.manage.managers import IngestionManagers
from millrace.manage.openrun import OpenRun, now_text
from millrace.manage.tools import Tools
from millrace.model.names import new_id
from millrace.seal.keyring import Keyring
from millrace.seal.kms_local import LocalKms
from millrace.settings import AppSettings, KmsSettings
from millrace.staging import sealed
from millrace.staging.runs import RUNNING, Run
from millrace.stopping import StopRequest
from tests.support.fake_platform import TOKEN, Cut, FakePlatform, Refuse, fake_platform
from tests.support.tended import tools_at

RUN = "run_1"


class Scene:
    def __init__(self, root: Path, fake: FakePlatform, keys: Keyring, tools: Tools) -> None:
        self.fake = fake
        self.staging = Staging(Home(root), "acme")
        self.staging.make()
        self.reports: list[dict[str, Any]] = []
        fake.answers["GET", "/v1/tenants/acme"] = {"tables": ["readings"]}
        self.keys = keys
        self.importer = Importer(tools, self.staging, lambda run, report: self.reports.append(report))

    def group(self, *names: str, is_new: bool = True) -> ClaimGroup:
        turn = self.importer.turns.take_number()
        return ClaimGroup(RUN, f"{RUN}.{turn}", tuple(map(self.claim, names)), turn, is_new)

    def claim(self, name: str, text: str | None = None, *, data_key: str = "") -> Claim:
        (self.staging.outbox / name).write_text(f"id\n{name}\n" if text is None else text)
        claim = take(self.staging, name, RUN, RUN, data_key=data_key)
        assert claim is not None
        return claim

    def admitted(self) -> list[tuple[str, str]]:
        """File and span of each import, in the order of their admission."""
        return [(query["file_name"], query["span"]) for query in self.fake.queries.values()]

    def outcomes(self) -> dict[str, str]:
        return {
            report["file"]: report["error"]["code"] if report["error"] else report["state"] for report in self.reports
        }


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    keys = Keyring(KeyFiles(Home(tmp_path)), lambda: LocalKms(tmp_path / "kms"))
    with fake_platform() as fake, tools_at(fake.url, tmp_path, lambda: keys) as tools:
        yield Scene(tmp_path, fake, keys, tools)


def test_groups_are_admitted_in_the_order_in_which_they_were_handed_over(scene: Scene) -> None:
    first, second = scene.group("b.csv", "a.csv"), scene.group("c.csv")
    later = threading.Thread(target=scene.importer.bring, args=(second,))
    later.start()
    scene.importer.bring(first)
    later.join(30)
    assert not later.is_alive()
    assert scene.admitted() == [("b.csv", "run_1.0"), ("a.csv", "run_1.0"), ("c.csv", "run_1.1")]
    assert scene.outcomes() == dict.fromkeys(("a.csv", "b.csv", "c.csv"), "completed")


def test_a_span_that_is_over_too_soon_is_followed_by_another(scene: Scene) -> None:
    group = scene.group("a.csv", "b.csv")
    # The tenant and the span are there; the span is aborted before the first file is admitted.
    scene.fake.refusals = [None, None, Refuse(409, {"code": "span_over", "detail": "It is aborted."})]
    assert scene.importer.bring(group) == ["run_1.0", "run_1.0"]
    scene.fake.refusals = [None, Refuse(409, {"code": "span_over", "detail": "It is over."})]
    assert scene.importer.bring(scene.group("c.csv")) == ["run_1.1-2"]
    assert scene.admitted()[-1] == ("c.csv", "run_1.1-2")


def test_a_file_that_is_refused_costs_no_other_file(scene: Scene) -> None:
    group = scene.group("big.csv", "b.csv")
    scene.fake.refusals = [
        None,
        None,
        Refuse(413, {"code": "too_large", "detail": "It is too large.", "remedy": "Split."}),
    ]
    scene.importer.bring(group)
    assert scene.outcomes() == {"big.csv": "too_large", "b.csv": "completed"}
    assert [path.name for path in scene.staging.failed.rglob("*.csv")] == ["big.csv"]


def test_a_tenant_that_is_gone_fails_its_files_and_holds_up_nobody(scene: Scene) -> None:
    del scene.fake.answers["GET", "/v1/tenants/acme"]
    scene.importer.bring(scene.group("a.csv"))
    scene.fake.answers["GET", "/v1/tenants/acme"] = {"tables": ["readings"]}
    scene.fake.refusals = [None, Refuse(404, {"code": "no_tenant", "detail": "There is no such tenant."})]
    scene.importer.bring(scene.group("b.csv"))
    assert scene.outcomes() == {"a.csv": "no_table", "b.csv": "no_tenant"}


def test_a_platform_that_is_away_loses_nothing(scene: Scene) -> None:
    group = scene.group("a.csv", "b.csv")
    # It goes away when both files are sent, before their span could be ended.
    scene.fake.refusals = [*[None] * 6, Refuse(503, {"code": "unavailable", "detail": "Not now."})]
    with pytest.raises(Problem):
        scene.importer.bring(group)
    assert still_open(scene.staging, group.claims) == group.claims
    scene.importer.bring(ClaimGroup(group.run, group.span, group.claims, group.turn, is_new=False))
    assert scene.outcomes() == {"a.csv": "completed", "b.csv": "completed"}
    assert len(scene.fake.keys) == 2
    ended = [path for method, path in scene.fake.requests if method == "POST" and path.endswith("1%2E0/end")]
    assert len(ended) == 2, "the span that was begun before is ended behind the outage"


def test_an_import_that_broke_off_is_tried_again_unless_that_could_double_rows(scene: Scene) -> None:
    rows = {"read": 5, "accepted": 5, "rejected": 0, "ignored": 0}
    scene.fake.outcome = {
        "state": "failed",
        "error": {"code": "expired", "message": "Broke off.", "remedy": ""},
        "rows": rows,
    }
    scene.fake.answers["GET", "/v1/tenants/acme/tables/readings"] = {"primary_key": []}
    scene.importer.bring(scene.group("keyless.csv"))
    assert (scene.outcomes(), len(scene.fake.keys)) == ({"keyless.csv": "broke_off"}, 1)
    scene.fake.answers["GET", "/v1/tenants/acme/tables/readings"] = {"primary_key": ["id"]}
    scene.importer.bring(scene.group("keyed.csv"))
    assert (scene.outcomes()["keyed.csv"], len(scene.fake.keys)) == ("expired", 1 + 5)


def test_a_sealed_file_is_sent_as_it_was_and_stays_sealed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "FRAME_BYTES", 1000)
    text = "id\n" + "4012-8888\n" * 1000
    claims = (scene.claim("a.csv", text, data_key="fil_1"), scene.claim("none.csv", "", data_key="fil_2"))
    # A connection that breaks goes on where the platform says, in the midst of a frame.
    scene.fake.patch_faults = [Cut(5000, 2345)]
    scene.importer.bring(ClaimGroup(RUN, RUN, claims, scene.importer.turns.take_number()))
    assert sorted(bytes(body) for body in scene.fake.stored.values()) == [b"", text.encode()]
    assert {report["file"]: report["bytes"] for report in scene.reports} == {"a.csv": len(text), "none.csv": 0}
    kept = sorted(path.name for path in scene.staging.done.rglob("*.*"))
    assert kept == ["a.csv.report.json", "a.csv.sealed", "none.csv", "none.csv.report.json"]
    assert not _plain_below(scene.staging.home.root)


def test_what_is_refused_is_sealed_too_and_what_cannot_be_opened_is_refused(scene: Scene) -> None:
    half = scene.claim("half.csv", "4012-8888", data_key="fil_1")
    half = changed(scene.staging, half, fault={"code": "half_written", "message": "", "remedy": ""})
    linked = scene.claim("linked.csv", "4012-8888", data_key="fil_2")
    os.link(file_of(scene.staging, linked), scene.staging.outbox / "second name")
    cut = scene.claim("cut.csv", "4012-8888", data_key="fil_3")
    close_up(scene.staging, cut, scene.keys)
    kept = file_of(scene.staging, cut).with_name("cut.csv.sealed")
    kept.write_bytes(kept.read_bytes()[:-1])
    spoilt = scene.claim("spoilt.csv", "4012-8888", data_key="fil_4")
    close_up(scene.staging, spoilt, scene.keys)
    file_of(scene.staging, spoilt).with_name("spoilt.csv.sealed").write_bytes(b"x")
    # After a crash nothing but the claims is known.
    claims = tuple(open_claims(scene.staging))
    scene.importer.bring(ClaimGroup(RUN, RUN, claims, scene.importer.turns.take_number(), is_new=False))
    spoilt_too = {"cut.csv": "corrupt", "spoilt.csv": "corrupt"}
    assert scene.outcomes() == {"half.csv": "half_written", "linked.csv": "invalid", **spoilt_too}
    assert scene.fake.stored == {}
    assert not _plain_below(scene.staging.failed)


@pytest.mark.parametrize("is_sealed_already", [True, False])
def test_a_key_that_was_destroyed_before_the_plain_file_was_gone_costs_nothing(
    scene: Scene, is_sealed_already: bool
) -> None:
    claim = scene.claim("a.csv", "4012-8888", data_key="fil_1")
    scene.keys.new("acme", "fil_1")
    if is_sealed_already:
        close_up(scene.staging, claim, scene.keys)
        file_of(scene.staging, claim).write_text("4012-8888")
    scene.keys.destroy("acme")
    scene.importer.bring(ClaimGroup(RUN, RUN, (claim,), scene.importer.turns.take_number()))
    assert scene.outcomes() == {"a.csv": "completed"}
    assert [bytes(body) for body in scene.fake.stored.values()] == [b"4012-8888"]
    assert not _plain_below(scene.staging.home.root)


def _plain_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and b"4012-8888" in path.read_bytes()]


def test_how_a_run_is_called_in_the_end(tmp_path: Path) -> None:
    staging = Staging(Home(tmp_path), "acme")
    staging.make()

    def ended(exit_code: int | None, error: str | None = None) -> str:
        run = OpenRun(staging, Run(new_id("run"), "acme", "batch", RUNNING, "asked", 1, now_text()))
        run.app_ended(exit_code, error)
        run.close()
        return run.folder.read().state

    assert (ended(0), ended(3), ended(-9)) == ("succeeded", "failed", "failed")
    assert (ended(None), ended(-15, "The agreement has changed.")) == ("interrupted", "interrupted")
    assert ended(None, "It could not be started.") == "failed"


def test_a_log_that_cannot_be_kept_holds_up_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENAMETOOLONG, "File name too long")

    monkeypatch.setattr(openrun, "gather_own_logs", refuse)
    staging = Staging(Home(tmp_path), "acme")
    staging.make()
    run = OpenRun(staging, Run(new_id("run"), "acme", "batch", RUNNING, "asked", 1, now_text()))
    run.keep_logs()
    run.app_ended(0)
    assert run.folder.read().state == "importing"


def test_one_tenants_trouble_ends_no_others_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_request, rotated = StopRequest(), list[str]()

    def troubled(_: object, staging: Staging) -> Mock:
        def rotate() -> None:
            rotated.append(staging.tenant)
            if len(rotated) == 2:
                stop_request.make()
            raise OSError(errno.ENAMETOOLONG, "File name too long")

        if staging.tenant == "not_taken_up":
            raise OSError(errno.ENAMETOOLONG, "File name too long")
        made = Mock(is_idle=False, is_busy=True, agreement=None, rotate_logs=rotate, staging=staging)
        made.status.return_value = {}
        return made

    for tenant in ("first", "not_taken_up", "second"):
        (Home(tmp_path).handled(tenant) / "taken" / "1").mkdir(parents=True)
    monkeypatch.setattr(managers, "AppRunner", troubled)
    with fake_platform() as fake, Millrace(fake.url, TOKEN) as connection:
        fake.answers["GET", "/v1/apps"] = {"items": []}
        IngestionManagers(Home(tmp_path), connection, AppSettings(), KmsSettings()).run(stop_request)
    assert rotated == ["first", "second"]
