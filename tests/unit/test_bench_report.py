"""A bench that is run alone renews its own figures in the report, and leaves those of the others."""

import json
from pathlib import Path

import pytest

from bench import __main__ as benches
from bench.figure import Figure, at_least


def measured(*names: str) -> list[Figure]:
    return [at_least(name, 2.0, "x", 1.0) for name in names]


def test_figures_of_one_bench_replace_its_last_ones_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benches, "BUILD", tmp_path)
    monkeypatch.setattr(benches, "CORE", {"up": lambda: measured("up"), "load": lambda: measured("load", "load.cpu")})

    def reported() -> list[str]:
        return [entry["name"] for entry in json.loads((tmp_path / "bench.json").read_text())]

    assert benches.main([]) == 0
    assert reported() == ["up", "load", "load.cpu"]
    monkeypatch.setitem(benches.CORE, "load", lambda: measured("load.memory"))
    assert benches.main(["load"]) == 0
    assert reported() == ["up", "load.memory"]
    monkeypatch.setitem(benches.CORE, "up", lambda: measured("up.again"))
    monkeypatch.delitem(benches.CORE, "load")
    assert benches.main([]) == 0
    assert reported() == ["up.again"], "a run of all keeps nothing of those before"
