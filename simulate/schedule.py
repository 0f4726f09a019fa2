"""Schedules: from a seed, a life of the world, step by step, with its faults, until nothing moves any more."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from millrace.model.ops.imports import CancelImport
from simulate import people
from simulate.content import TABLES
from simulate.logs import PROGRESS
from simulate.memo import remembered
from simulate.queries import Validating
from simulate.server import Crash
from simulate.watch import Violation
from simulate.world import World

Action = Callable[[World, Random], Any]
LEAST_STEPS, MOST_STEPS = 22, 62
# Who has begun something mostly goes on with it for a while.
GOES_ON, STOPS = 0.7, 0.1
MOST_QUIET_ROUNDS = 400


def _tick(world: World, chance: Random) -> None:
    """Time mostly crawls, sometimes leaps over a lease, and now and then the broker's clock goes back."""
    leap = chance.random()
    world.now_us += -3_000_000 if leap < 0.1 else 70_000_000 if leap < 0.2 else chance.randrange(2_000_000)


class Part(Protocol):
    """Whoever does one thing at a time; False if there was nothing to do."""

    def step(self, chance: Random) -> bool: ...


def _go_on(part: Callable[[World], Part]) -> Action:
    def action(world: World, chance: Random) -> None:
        _work(part(world), chance)

    return action


def _client(world: World, chance: Random) -> None:
    clients: list[Part] = [*world.uploaders, *world.senders]
    if clients:
        _work(chance.choice(clients), chance)


def _work(part: Part, chance: Random) -> None:
    while part.step(chance) and chance.random() < GOES_ON:
        pass


def _announce(world: World, chance: Random) -> None:
    world.queries[chance.choice(("quick", "bulk"))].announce()


def _tell_again(world: World, chance: Random) -> None:
    facts = world.logs.read(PROGRESS, 0, 0)
    if facts:
        world.tell_progress(chance.choice(facts).value)


def _crash_query(world: World, chance: Random) -> None:
    """Mostly one that is in the middle of a batch, so that it has something to do again."""
    queries = list(world.queries.values())
    chance.choice([query for query in queries if query.is_busy] or queries).crash(chance)


def _stop_in_a_batch(world: World, chance: Random) -> None:
    """What is being judged is stopped, and its batch is run again."""
    for query in (world.queries["quick"], world.queries["bulk"]):
        if isinstance(query, Validating) and query.is_busy:
            chunk = query.judging
            world.ask(CancelImport(world.definitions[chunk.definition].tenant, chunk.import_id))
            while world.controller.step(chance):
                pass
            query.crash(chance)


def _back_up(world: World, chance: Random) -> None:
    world.backups.append(world.store.backup())


def _restore(world: World, chance: Random) -> None:
    """An older store, and the logs as they are: it catches up."""
    if world.backups:
        world.store.restore(chance.choice(world.backups))
        world.crash_server(chance)


def calm(world: World, chance: Random) -> None:
    """Everyone who is there does what there is to do, until there is nothing."""
    clients = [uploader for uploader in world.uploaders if not uploader.is_gone]
    parts: list[Part] = [world.controller, world.accountant, *world.queries.values(), *clients, *world.senders]
    moved = True
    while moved:
        moved = False
        chance.shuffle(parts)
        for part in parts:
            while part.step(chance):
                moved = True
                if chance.random() < STOPS:
                    break


ACTIONS: dict[str, tuple[int, Action]] = {
    "upload": (8, people.upload),
    "send": (2, people.send),
    "client": (34, _client),
    "define": (2, people.define),
    "change": (2, people.change),
    "cancel": (4, people.cancel),
    "begin span": (5, people.begin_span),
    "end span": (5, people.end_span),
    "mend": (16, people.mend),
    "vanish": (2, people.vanish),
    "controller": (40, _go_on(lambda world: world.controller)),
    "rival": (3, _go_on(lambda world: world.rival)),
    "accountant": (16, _go_on(lambda world: world.accountant)),
    "quick": (14, _go_on(lambda world: world.queries["quick"])),
    "bulk": (14, _go_on(lambda world: world.queries["bulk"])),
    "sink": (16, _go_on(lambda world: world.queries["sink"])),
    "mirror": (6, _go_on(lambda world: world.queries["mirror"])),
    "fail mirror": (4, people.fail_mirror),
    "errors": (8, _go_on(lambda world: world.queries["errors"])),
    "announce": (5, _announce),
    "arrive late": (3, lambda world, chance: world.arrive_late(chance)),
    "tell again": (3, _tell_again),
    "calm": (6, calm),
    "tick": (8, _tick),
    "timer": (3, lambda world, chance: world.ring()),
    "purge": (4, lambda world, chance: world.purge_tombstones(chance.choice(TABLES))),
    "crash server": (2, lambda world, chance: world.crash_server(chance)),
    "crash query": (4, _crash_query),
    "stop in a batch": (3, _stop_in_a_batch),
    "back up": (4, _back_up),
    "restore": (3, _restore),
}
_NAMES = list(ACTIONS)


def _leaning(chance: Random) -> list[float]:
    """Each life has its own bent: what is rare in one is common in another."""
    return [weight * chance.choice((0.2, 1, 1, 4)) for weight, _ in ACTIONS.values()]


def act(world: World, name: str, chance: Random) -> None:
    try:
        ACTIONS[name][1](world, chance)
    except Crash:
        world.crash_server(chance)


def warm_up(world: World, chance: Random) -> None:
    """Tenants and tables are there, and some have begun to upload."""
    people.begin(world, chance)
    while world.controller.step(chance):
        pass
    if chance.random() < 0.5:
        _back_up(world, chance)
    for _ in range(chance.choice((0, 2))):
        people.begin_span(world, chance)
    for _ in range(3):
        people.upload(world, chance)


def settle_down(world: World, chance: Random) -> None:
    """No more faults and nobody new: whoever is there goes on, time passes, until nothing moves. Then all is checked."""
    world.crashes = 0.0
    world.down.clear()
    people.tidy_up(world, chance)
    for _ in range(MOST_QUIET_ROUNDS):
        calm(world, chance)
        before = world.logs.ends("ops")
        for name in ("quick", "bulk"):
            world.queries[name].announce()
        while world.accountant.step(chance):
            pass
        world.now_us += 300_000_000
        world.ring()
        # What someone sent who is no longer there may arrive when all seems over.
        if world.logs.ends("ops") == before and not world.arrive_late(chance):
            world.watch.over()
            return
    raise Violation("liveness", "the world does not come to rest")


@dataclass(frozen=True)
class Lived:
    """`met` is the greatest number of imports that one table had under way at once."""

    seed: int
    steps: int
    met: int
    violation: Violation | None = None
    trace: tuple[str, ...] = ()


def run(seed: int, make_world: Callable[[], World] = World) -> Lived:
    chance = Random(seed)
    steps, met = chance.randint(LEAST_STEPS, MOST_STEPS), 0
    done: list[str] = []
    try:
        with remembered():
            world = make_world()
            warm_up(world, chance)
            world.crashes = chance.choice((0.0, 0.02, 0.08))
            for name in chance.choices(_NAMES, _leaning(chance), k=steps):
                done.append(name)
                act(world, name, chance)
                met = max(met, *(table.open_imports for table in world.store.read().tables.values()), 0)
            settle_down(world, chance)
    except Violation as violation:
        return Lived(seed, steps, met, violation, tuple(done))
    return Lived(seed, steps, met)
