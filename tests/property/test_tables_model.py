"""Batches, damage and repair of tables, a store and facts that fail, new processes, in random order. In the end every row is
there: of a key the last one, without a key each once, and every group has a durable fact."""

import random
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from millrace.deliver import pace, tables
from millrace.deliver.fact_writer import FactWriter
from millrace.exchange.queues import Queues
from millrace.sink.contract import StagedGroup
from tests.support.broken_tables import Repair, empty_entry, garbage_entry, unknown_protocol
from tests.support.waiting import wait_until
from tests.unit.test_deliver_tables import World

NAMES, STEPS = ("a", "b", "c"), 14
LOG_DAMAGE = (garbage_entry, empty_entry, unknown_protocol)


def _without_folder(root: Path) -> Repair:
    """Something else is where the table was. Both changes happen at once, or a courier could make the folder in between."""
    real, other = root.with_name(f"{root.name}.real"), root.with_name(f"{root.name}.other")
    if not root.is_symlink():
        root.rename(real)
        root.symlink_to(real)
    other.write_text("in the way")
    other.replace(root)

    def repair() -> None:
        other.symlink_to(real)
        other.replace(root)

    return repair


class Failed(Exception):
    pass


class Chance:
    """Calls that fail now and then, before or after they have done their work."""

    def __init__(self, random_: random.Random) -> None:
        self._random, self.share = random_, 0.0

    def spoil(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def spoiled(*given: Any, **named: Any) -> Any:
            fate = self._random.random()
            if fate < self.share:
                raise Failed(f"before {name}")
            done = real(*given, **named)
            if fate > 1 - self.share:
                raise Failed(f"after {name}")
            return done

        monkeypatch.setattr(owner, name, spoiled)


class Model:
    def __init__(self, root: Path, seed: int, chance: Chance, random_: random.Random) -> None:
        self.world = World(root, key=("id",) if seed % 2 else ())
        self.chance, self.random = chance, random_
        self.version = 0
        self.rows: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        self.chunks: set[tuple[str, int]] = set()
        self.repairs: dict[str, Repair] = {}
        self.history: list[list[StagedGroup]] = []

    def group(self, name: str) -> StagedGroup:
        self.version += 1
        texts = [f"v{self.version}.{number}" for number in range(self.random.randint(1, 3))]
        self.rows[name] += [(str(number), text) for number, text in enumerate(texts)]
        self.chunks.add((f"imp{self.version}", 0))
        # A folder that is no folder takes nothing: the worker stages aside.
        is_folder = self.world.folder(name).is_dir() or not self.world.folder(name).exists()
        return (self.world.group if is_folder else self.world.aside)(name, self.version, *texts)

    def step(self) -> None:
        self.chance.share = self.random.choice([0, 0, 0.15])
        for name in NAMES:
            if name in self.repairs and self.random.random() < 0.35:
                self.repairs.pop(name)()
        batch = [self.group(name) for name in NAMES for _ in range(self.random.randint(0, 2))]
        for name in NAMES:
            # After the rows were staged: also the folder that holds them may go.
            # Not while a courier writes the table: damage done by halves would be the test's own.
            if name not in self.repairs and self.random.random() < 0.25 and not self.world.waiting(name):
                self.repairs[name] = self.random.choice([*LOG_DAMAGE, _without_folder])(self.world.folder(name))
        again = self.random.choice(self.history) if self.random.random() < 0.2 else []
        self.write([*again, *batch])
        self.history.append(batch)
        if self.random.random() < 0.2:
            # The couriers of the old process go on: two at once.
            self.world.start()
        time.sleep(self.random.random() * 0.1)

    def write(self, batch: list[StagedGroup]) -> None:
        """A query repeats its batch until it is over."""
        while True:
            try:
                self.world.write(*batch)
            except Failed:
                if self.random.random() < 0.3:
                    self.world.start()
            else:
                return

    def settle(self) -> None:
        self.chance.share = 0
        for repair in self.repairs.values():
            repair()
        self.world.start()
        for name in NAMES:
            self.world.resume(name)
        wait_until(lambda: not any(map(self.world.waiting, NAMES)), 60, "all is there")

    def check(self) -> None:
        for name in NAMES:
            found = pl.read_delta(str(self.world.folder(name))).select("id", "text").rows()
            expected = list(dict(self.rows[name]).items()) if self.world.key else self.rows[name]
            assert sorted(found) == sorted(expected)
        assert self.chunks <= set(self.world.durable)


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 9))])
def test_whatever_happens_to_tables_their_rows_arrive(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(pace, "FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(pace, "LONGEST_PAUSE_SECONDS", 0.3)
    random_ = random.Random(seed)
    chance = Chance(random_)
    for owner, name in ((Queues, "park"), (Queues, "finish"), (FactWriter, "_write")):
        chance.spoil(monkeypatch, owner, name)
    model = Model(tmp_path, seed, chance, random_)
    model.history.append([model.group(name) for name in NAMES])
    model.write(model.history[0])
    for _ in range(STEPS):
        model.step()
    model.settle()
    model.check()
