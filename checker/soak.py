"""A soak: a platform in a home of its own, random load and random faults for some minutes, then the verdict."""

import json
import math
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx2
import numpy as np

from checker.board import Board, Lines
from checker.breaker import Breaker
from checker.caller import Caller
from checker.capabilities import DELETES, WEBHOOKS, missing, probe
from checker.collecting import Collector
from checker.defining import Definer
from checker.foreign.engines import open_writers
from checker.foreign.rounds import Rounds
from checker.hostile import rounds
from checker.hostile.rounds import Hostility
from checker.listening import Listener, Readings
from checker.loading import Client, Scene
from checker.making import Maker
from checker.nemesis import Nemesis, plan
from checker.platform import Platform
from checker.receiving import Receiver
from checker.report import ATTACKS, BROKEN_TABLES, FOREIGN_WRITES, KILLS_EACH, PER_MINUTES, SCHEMA_CHANGES
from checker.tables import TENANTS, plan_tables
from checker.topics import start_tail

ENVIRON = {"MILLRACE_API__LEASE_SECONDS": "20", "MILLRACE_API__PRIVATE_TARGETS": '["127.0.0.0/8"]', **rounds.ENVIRON}
SEQUENTIAL, CONCURRENT = 2, 4
PAUSE_SECONDS = 2.0
SPARE = 1.15
FOREIGN_TRIES = 8
PAUSES_PER_KILL = 0.9
LOOK_SECONDS = 5.0
WARM_SECONDS = 2.0
MARK = ".made-by-the-checker"


@dataclass(frozen=True, slots=True)
class Wish:
    minutes: float
    seed: int
    home: Path
    dump: Path
    most_disk_mb: int
    engines: tuple[str, ...] = ()


def soak(wish: Wish) -> None:
    """Leaves a dump; stops the platform whatever happens."""
    for folder in (wish.home, wish.dump):
        _empty(folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before its time"))
    platform = Platform(wish.home, ENVIRON)
    _say(f"seed {wish.seed}: starting a platform in {wish.home}")
    platform.start()
    try:
        Run(wish, platform).run()
    finally:
        platform.stop()


def _empty(folder: Path) -> None:
    """Makes the folder anew, unless it holds something that is not ours."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        sys.exit(f"{folder} holds something else: choose another folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).touch()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Run:
    def __init__(self, wish: Wish, platform: Platform) -> None:
        self._wish, self._platform = wish, platform
        self._board = Board()
        self._tables = plan_tables()
        rng = np.random.default_rng(wish.seed)
        self._canaries = {
            tenant: f"canary{number}x{int(rng.integers(1 << 40)):010x}" for number, tenant in enumerate(TENANTS)
        }
        self._keyless = {table.place for table in self._tables if not table.keyed}
        self._capabilities = probe(httpx2.get(f"{platform.url}/openapi.json", timeout=30).json())
        self._tokens = self._make_tenants()
        self._threads: list[threading.Thread] = []

    def _make_tenants(self) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self._platform.token}"}
        with httpx2.Client(base_url=self._platform.url, headers=headers, timeout=60) as http:
            for number, tenant in enumerate(TENANTS):
                agreement = {"client": tenant, "encryption": number % 2 == 1}
                http.put(f"/v1/tenants/{tenant}", json=agreement).raise_for_status()
            tokens = {}
            for tenant in TENANTS:
                wanted = {"tenant": tenant, "name": f"{tenant}-{secrets.token_hex(3)}"}
                tokens[tenant] = http.post("/v1/tokens", json=wanted).raise_for_status().json()["token"]
            return tokens

    def _caller_for(self, tenant: str) -> Caller:
        return Caller(self._platform.url, self._tokens[tenant], tenant, self._canaries, self._wish.dump / "history")

    def run(self) -> None:
        """1. Declare. 2. Watch. 3. Load and break for the time given. 4. Heal, settle, collect."""
        wish, dump = self._wish, self._wish.dump
        maker = Maker(wish.seed, self._canaries, dump, self._board, deletes=DELETES in self._capabilities)
        scene = Scene(self._tables, maker, self._board, dump, self._capabilities)
        changes = SCHEMA_CHANGES * wish.minutes / PER_MINUTES * SPARE + 1
        definer = Definer(scene, wish.seed + 1, self._caller_for, pause=wish.minutes * 60 / (changes + 1))
        definer.declare_all()
        receiver = self._subscribe()
        watching = threading.Event()
        finish_tail = start_tail(self._platform.kafka_login, self._canaries, dump / "records", threading.Event())
        readings = Readings(self._platform.home / "lake", self._keyless, dump, self._board)
        listener = Listener(
            self._platform.url, self._platform.token, Lines(dump / "heard.jsonl"), self._board, readings
        )
        self._thread("listener", lambda: listener.follow(watching))
        reader = self._thread("readings", lambda: readings.read_wanted(watching))
        faults = Lines(dump / "nemesis.jsonl")
        nemesis = Nemesis(self._platform, self._board, faults, wish.seed + 2)
        load = [time.monotonic()]
        self._load(scene, definer, self._adversaries(nemesis, faults))
        load.append(time.monotonic())
        nemesis.heal()
        collector = Collector(self._platform, self._tables, self._canaries, dump, self._capabilities)
        settled = collector.wait_settled()
        _say(f"settled after {settled:.0f} s; collecting")
        collector.wait_heard(receiver.ids if WEBHOOKS in self._capabilities else None)
        watching.set()
        reader.join(120)
        finish_tail()
        collector.collect()
        self._write_run(scene, collector, load, settled)

    def _subscribe(self) -> Receiver:
        receiver = Receiver(Lines(self._wish.dump / "webhooks.jsonl"))
        for tenant in TENANTS if WEBHOOKS in self._capabilities else ():
            wanted = {"name": "checker", "url": receiver.url(tenant), "types": ["import.*", "span.*"]}
            headers = {"Authorization": f"Bearer {self._tokens[tenant]}"}
            path = f"{self._platform.url}/v1/tenants/{tenant}/subscriptions"
            answer = httpx2.post(path, json=wanted, headers=headers, timeout=60).raise_for_status()
            receiver.secrets[tenant] = answer.json()["secret"]
        return receiver

    def _adversaries(self, nemesis: Nemesis, lines: Lines) -> dict[str, Callable[[float], None]]:
        """By name; each is told how many seconds it has."""
        seed = self._wish.seed
        # Some damage is not noticed before it is mended.
        kills, broken, attacks = (self._share(each) for each in (KILLS_EACH, 1.5 * BROKEN_TABLES, ATTACKS))
        faults = plan(np.random.default_rng(seed + 3), kills, math.ceil(4 * kills * PAUSES_PER_KILL))
        breaker = Breaker(self._platform, self._tables, self._board, lines, seed + 4)
        folder = self._wish.dump / "history"
        operator = Caller(self._platform.url, self._platform.token, rounds.TENANT, self._canaries, folder)
        hostility = Hostility(self._platform, operator, self._canaries, self._board, lines)
        writers = open_writers(self._wish.engines, self._wish.dump)
        foreign = Lines(self._wish.dump / "foreign.jsonl")
        rounds_of_others = Rounds(self._platform.home / "lake", self._tables, writers, self._board, foreign, seed + 5)
        # Many are refused, because an import was faster or the table is broken.
        pause = PER_MINUTES * 60 / (FOREIGN_WRITES * FOREIGN_TRIES)
        return {
            **({"foreign": lambda _: rounds_of_others.run(pause)} if writers else {}),
            "nemesis": lambda seconds: nemesis.run(faults, seconds),
            "breaker": lambda seconds: breaker.run(broken, seconds),
            "hostility": lambda seconds: hostility.run(attacks, seconds),
        }

    def _share(self, of_a_long_run: float) -> int:
        """So many in proportion to the time, with some to spare."""
        return math.ceil(of_a_long_run * self._wish.minutes / PER_MINUTES * SPARE)

    def _load(self, scene: Scene, definer: Definer, adversaries: dict[str, Callable[[float], None]]) -> None:
        wish = self._wish
        clients = [(1, PAUSE_SECONDS)] * SEQUENTIAL + [(4, PAUSE_SECONDS)] * CONCURRENT
        for number, (most_open, pause) in enumerate(clients):
            client = Client(scene, wish.seed + 100 + number, self._caller_for, most_open=most_open, pause=pause)
            self._threads.append(self._thread(f"client-{number}", client.run))
        self._threads.append(self._thread("definer", definer.run))
        until = time.monotonic() + wish.minutes * 60
        self._board.stop.wait(WARM_SECONDS)
        left = until - time.monotonic()
        for name, adversary in adversaries.items():
            self._threads.append(self._thread(name, partial(adversary, left)))
        self._wait(until)
        self._board.stop.set()
        for thread in self._threads:
            thread.join(120)

    def _wait(self, until: float) -> None:
        told = time.monotonic()
        while (left := until - time.monotonic()) > 0 and not self._board.stop.wait(min(left, LOOK_SECONDS)):
            if not self._platform.is_running:
                raise RuntimeError("the platform has given up; see up.log in its home")
            if time.monotonic() - told > 30:
                told = time.monotonic()
                used = self._platform.disk_bytes() >> 20
                _say(f"{left:.0f} s left: {self._board.figures}, {used} MB on disk")
                if used > self._wish.most_disk_mb:
                    _say(f"more than {self._wish.most_disk_mb} MB on disk: the load ends here")
                    return

    def _thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except Exception as error:
                # A client that fails is a mistake of the checker; the run goes on and the quotas show what is missing.
                _say(f"{name} failed: {type(error).__name__}: {error}")
                raise

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread

    def _write_run(self, scene: Scene, collector: Collector, load: list[float], settled: float) -> None:
        said = {
            "seed": self._wish.seed,
            "engines": list(self._wish.engines),
            "minutes": self._wish.minutes,
            "canaries": self._canaries,
            "keyless": [list(place) for place in sorted(self._keyless)],
            "atomic": [list(table.place) for table in self._tables if table.is_atomic],
            "capabilities": sorted(self._capabilities),
            "not_in_this_build": [*missing(self._capabilities), *sorted(scene.refused)],
            "lags": collector.lags(),
            "wear": collector.wear(),
            "load_begun_mono": load[0],
            "load_ended_mono": load[1],
            "settled_seconds": settled,
            "disk_mb": self._platform.disk_bytes() >> 20,
        }
        (self._wish.dump / "run.json").write_text(json.dumps(said, indent=1))
