"""The report: quotas in proportion to the time, faults planned in rounds, and a run without enough of either is red."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from checker.board import Board, Lines
from checker.figures import Figures, concurrent_share, measure
from checker.findings import Findings
from checker.model import Model
from checker.nemesis import KILLED, Fault, Nemesis, plan
from checker.platform import Platform
from checker.report import is_green, quotas, release_line, report
from checker.selftest.good_run import good_run

ENOUGH = Figures(
    minutes=30.0,
    imports=300,
    rows=1_000_000,
    concurrent_share=0.3,
    schema_changes=20,
    kills=dict.fromkeys(KILLED, 8),
    faults={"F1": 8, "F21": 52},
    unknown=3,
    unresolved=0,
    recovery=(2.0, 9.0, 11.0),
    end_latency=(0.4, 8.0),
    replayed_percent=1.5,
    longest_stall=21.0,
    broken_tables=5,
    attacks=10,
    foreign_writes=60,
    has_other_writers=True,
)
GREEN = Findings("K1", "lost", comparisons=5)


def test_thirty_minutes_need_what_the_issue_says() -> None:
    assert all(quota.is_met for quota in quotas(ENOUGH))
    for less in (
        replace(ENOUGH, imports=299),
        replace(ENOUGH, rows=999_999),
        replace(ENOUGH, concurrent_share=0.29),
        replace(ENOUGH, schema_changes=19),
        replace(ENOUGH, broken_tables=4),
        replace(ENOUGH, attacks=9),
        replace(ENOUGH, foreign_writes=59),
        *(replace(ENOUGH, kills={**ENOUGH.kills, part: 7}) for part in KILLED),
    ):
        assert sum(not quota.is_met for quota in quotas(less)) == 1
        assert not is_green([GREEN], less, with_quotas=True)
        assert is_green([GREEN], less, with_quotas=False)


def test_a_shorter_run_needs_less_but_one_kill_of_each_at_least() -> None:
    wanted = {quota.name: quota.wanted for quota in quotas(replace(ENOUGH, minutes=3.0))}
    assert wanted["imports"] == 30
    assert wanted["rows"] == 100_000
    assert wanted["kills of the broker under load"] == wanted["broken tables"] == wanted["attacks of a client app"] == 1


def test_one_violation_or_a_check_without_comparisons_is_red() -> None:
    assert is_green([GREEN], ENOUGH, with_quotas=True)
    assert not is_green([GREEN, Findings("K2", "phantom", comparisons=5, violations=1)], ENOUGH, with_quotas=True)
    assert not is_green([GREEN, Findings("K2", "phantom")], ENOUGH, with_quotas=True)


def test_the_line_of_a_release_says_everything() -> None:
    line = release_line([GREEN], ENOUGH, (40, 40))
    for part in (
        "hours 0.50", "rows 1,000,000", "faults 60 (F1×8 F21×52)", "info ops 3 (unresolved 0)", "violations 0",
        "95% bound 0.050", "mutants 40/40", "recovery 2.0/9.0/11.0 s", "END latency 0.40/8.00 s", "replayed rows 1.5 %",
        "longest stall 21.0 s",
    ):  # fmt: skip
        assert part in line


def test_figures_are_taken_from_the_dump() -> None:
    model = Model(good_run())
    figures = measure(model)
    assert figures.imports == len(model.imports)
    assert figures.rows == sum(file["rows"] for file in model.dump.files)
    assert figures.schema_changes == 2
    assert figures.faults == dict.fromkeys(["kill broker", "kill driver", "kill worker", "F60", "F61"], 2)
    assert (figures.broken_tables, figures.attacks) == (2, 2)
    assert 0 < concurrent_share(model) < 1
    assert "K16" in report([GREEN, Findings("K16", "notify", 1)], figures, None)


def test_the_wait_for_a_broken_table_is_no_latency_of_the_platform() -> None:
    dump = good_run()
    model = Model(dump)
    waited = next(
        i
        for i in model.imports.values()
        if f"{i.tenant}/{i.table}" == "left/ledger"
        and i.seq == max(each.seq for each in model.imports.values() if f"{each.tenant}/{each.table}" == "left/ledger")
    )
    for line in dump.heard:
        if line["event"]["subject"] == waited.id:
            line["t_wall"] += 1000.0
    assert measure(Model(dump)).end_latency[1] < 100.0
    fault = next(each for each in dump.nemesis if each["fault"] == "F60")
    fault["target"] = "left/other"
    assert measure(Model(dump)).end_latency[1] > 100.0


def test_faults_come_in_rounds_and_as_the_seed_says() -> None:
    faults = plan(np.random.default_rng(5), kills_each=3, pauses=7)
    kills = [fault.target for fault in faults if fault.signal == "KILL"]
    assert Counter(kills) == dict.fromkeys(KILLED, 3)
    assert [set(kills[at : at + len(KILLED)]) for at in range(0, len(kills), len(KILLED))] == [set(KILLED)] * 3
    assert sum(fault.signal == "STOP" for fault in faults) == 7
    assert faults == plan(np.random.default_rng(5), kills_each=3, pauses=7)


def test_kills_are_inflicted_even_when_faults_fall_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    inflicted: list[Fault] = []
    monkeypatch.setattr(Nemesis, "_wait_healthy", lambda self: None)
    monkeypatch.setattr(Nemesis, "_inflict", lambda self, fault: inflicted.append(fault))
    (tmp_path / "client.json").write_text('{"url": "http://127.0.0.1:9", "token": "t"}')
    nemesis = Nemesis(Platform(tmp_path, {}), Board(), Lines(tmp_path / "nemesis.jsonl"), seed=1)
    nemesis.run(plan(np.random.default_rng(5), kills_each=2, pauses=9), seconds=0.0)
    assert Counter(fault.target for fault in inflicted) == dict.fromkeys(KILLED, 2)
    assert {fault.signal for fault in inflicted} == {"KILL"}
