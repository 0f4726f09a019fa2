"""The table log in a simulated world: many lives keep the rules, Hypothesis shrinks a failure, and planted bugs are found."""

import os
import re
import subprocess
import sys
from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from simulate.bugs import BUGS
from simulate.memo import remembered
from simulate.schedule import ACTIONS, act, run, settle_down, warm_up
from simulate.sqlstore import SqlStore
from simulate.world import World
from tests.support.examples import examples, is_thorough

SCHEDULES = 3000 if is_thorough() else 600
# The same lives for the same code; new ones are for `make simulate`.
FIRST_SEED = 20_261_115
LIVES_ON_SQL = 8
seeds = st.integers(0, 2**16)


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In processes of its own, on every core; measuring coverage there would cost more than the lives themselves."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    command = [sys.executable, "-m", "simulate", *arguments]
    return subprocess.run(command, env=plain, capture_output=True, text=True, timeout=280, check=False)


def test_many_lives_keep_every_rule() -> None:
    done = simulate("--schedules", str(SCHEDULES), "--seed", str(FIRST_SEED))
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(r"(\d+) schedules .* mean (\d+) steps, .* in (\d+) %", done.stdout)
    assert told is not None
    schedules, steps, met = map(int, told.groups())
    assert schedules >= SCHEDULES
    assert steps >= 30
    assert met >= 40, "imports must meet on a table, or nothing was shown"


def test_every_planted_bug_is_found() -> None:
    done = simulate("--bugs", "--seconds", "60", "--seed", str(FIRST_SEED))
    assert done.returncode == 0, done.stdout
    assert f"{len(BUGS)} of {len(BUGS)} planted bugs found" in done.stdout


def test_a_life_can_be_lived_again() -> None:
    assert run(4711) == run(4711)
    lived = run(4711)
    assert simulate("--seed", "4711").stdout == f"seed 4711: {lived.steps} steps, nothing violated\n"


@pytest.mark.parametrize("seed", range(LIVES_ON_SQL))
def test_the_same_lives_on_the_real_store(seed: int) -> None:
    stores: list[SqlStore] = []

    def on_sql() -> World:
        def store(contents: dict[bytes, tuple[object, ...]]) -> SqlStore:
            stores.append(SqlStore(contents))  # type: ignore[arg-type]
            return stores[-1]

        return World(store)  # type: ignore[arg-type]

    lived = run(seed, on_sql)
    for store in stores:
        store.close()
    assert lived.violation is None, lived


class Life(RuleBasedStateMachine):
    """The same world, its actions chosen by Hypothesis: what goes wrong is shown in its shortest form."""

    @initialize(seed=seeds, crashes=st.sampled_from([0.0, 0.05]))
    def begin(self, seed: int, crashes: float) -> None:
        with remembered():
            self.world = World()
            warm_up(self.world, Random(seed))
            self.world.crashes = crashes

    @rule(action=st.sampled_from(sorted(ACTIONS)), seed=seeds)
    def go_on(self, action: str, seed: int) -> None:
        with remembered():
            act(self.world, action, Random(seed))

    def teardown(self) -> None:
        if hasattr(self, "world"):
            with remembered():
                settle_down(self.world, Random(0))


def test_whatever_hypothesis_thinks_of() -> None:
    run_state_machine_as_test(Life, settings=examples(60, stateful_step_count=40))
