"""Inputs of a batch app under encryption, around its runs: plain while a program may read them, whatever comes in between."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from millrace.exchange.app_folders import Staging
from millrace.exchange.home import Home
from millrace.exchange.keys import KeyFiles
from millrace.manage import input_handover, launching
from millrace.manage.app_runner import AppRunner
from millrace.manage.tidying import tidy
from millrace.model.agreement import parse_agreement
from millrace.model.errors import Unavailable
from millrace.seal.keyring import Keyring
from millrace.seal.kms_local import LocalKms
from millrace.staging.arrivals import Arrival
from millrace.staging.inputs import give
from millrace.staging.runs import run_folders
from tests.support.fake_platform import fake_platform
from tests.support.tended import tools_at
from tests.support.waiting import wait_until


class Program:
    """Runs until the test says otherwise."""

    is_stopping = False
    code: int | None = None

    def __init__(self, *_: object) -> None:
        pass

    def poll(self) -> int | None:
        return Program.code


class Scene:
    def __init__(self, root: Path, url: str) -> None:
        self._ring = Keyring(KeyFiles(Home(root)), lambda: LocalKms(root / "kms"))
        self.is_away = False
        self._tools = tools_at(url, root, self.keys)
        self.staging = Staging(Home(root), "acme")
        self.tended = AppRunner(self._tools.__enter__(), self.staging)
        agreed = {"client": "acme", "app": {"command": ["./a"], "mode": "batch"}, "encryption": True}
        self.tended.agree(parse_agreement(agreed)[0], 1)

    def leave(self) -> None:
        self._tools.__exit__(None, None, None)

    def keys(self) -> Keyring:
        if self.is_away:
            raise Unavailable("The keeper of the keys is away.")
        return self._ring

    def upload(self, name: str) -> None:
        with Arrival(self.staging, name, self._ring) as arrival:
            arrival.write(b"4012-8888")
            arrival.keep()

    @property
    def asked(self) -> Path:
        return self.staging.home.app_request("acme")

    def ask(self) -> None:
        self.asked.parent.mkdir(parents=True, exist_ok=True)
        self.asked.touch()

    def look(self) -> None:
        """As the keeper does."""
        asked = ["acme"] if self.asked.exists() else []
        if self.tended.has_to_be_looked_at(now := datetime.now(UTC), asked):
            self.tended.tick(now)

    def looks_until(self, condition: Callable[[], Any], what: str) -> None:
        def is_so() -> bool:
            self.look()
            return bool(condition())

        wait_until(is_so, 30, what)

    def states(self) -> list[str]:
        return [folder.read().state for folder in run_folders(self.staging)]

    def inside(self) -> list[str]:
        return [path.name for path in self.staging.inbox.iterdir()]

    def arrived(self) -> list[str]:
        return sorted(path.name for path in self.staging.arrived.iterdir() if path.name[0] != ".")

    def is_sealed_again(self, *names: str) -> bool:
        return (self.inside(), self.arrived()) == ([], sorted(names))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(launching, "AppProcess", Program)
    monkeypatch.setattr(input_handover, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(Program, "code", None)
    with fake_platform() as fake:
        fake.answers["GET", "/v1/tenants/acme"] = {"tables": ["readings"]}
        scene = Scene(tmp_path, fake.url)
        yield scene
        scene.leave()


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """What is given is held up until it is set."""
    let = threading.Event()

    def held_up(*given: Any) -> bool:
        assert let.wait(20)
        return give(*given)

    monkeypatch.setattr(input_handover, "give", held_up)
    yield let
    let.set()


def test_what_a_run_left_while_the_keys_were_away_is_sealed_when_they_are_back(scene: Scene) -> None:
    scene.upload("a.csv")
    scene.ask()
    scene.looks_until(lambda: scene.inside() and scene.states() == ["running"], "the program to start")
    scene.is_away, Program.code = True, 0
    scene.looks_until(lambda: scene.states() == ["succeeded"], "the run to end")
    scene.looks_until(lambda: not scene.tended._giving.is_under_way, "the first attempt to fail")
    scene.is_away = False
    scene.looks_until(lambda: scene.is_sealed_again("a.csv"), "what it left to be sealed")


def test_what_is_given_while_the_program_ends_is_sealed_and_waited_for(scene: Scene, hold: threading.Event) -> None:
    scene.ask()
    scene.looks_until(lambda: scene.states() == ["running"], "the program to start")
    scene.upload("a.csv")
    scene.look()
    Program.code = 0
    scene.looks_until(lambda: scene.states() == ["succeeded"], "the run to end")
    assert not scene.tended.is_idle
    hold.set()
    scene.looks_until(lambda: scene.is_sealed_again("a.csv"), "what was given to be sealed")
    scene.looks_until(lambda: scene.tended.is_idle, "nothing to be under way")


def test_inputs_of_a_run_that_could_not_start_are_sealed_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("There is no process left.")

    monkeypatch.setattr(launching, "AppProcess", refuse)
    scene.look()
    scene.upload("a.csv")
    scene.ask()
    scene.looks_until(lambda: scene.states() == ["failed"], "the run to fail")
    scene.looks_until(lambda: scene.is_sealed_again("a.csv"), "its input to be sealed")


def test_inputs_of_a_run_that_nobody_wants_any_more_are_sealed_again(scene: Scene, hold: threading.Event) -> None:
    scene.upload("a.csv")
    scene.ask()
    scene.looks_until(lambda: scene.tended._giving._before_start, "its input to be made ready")
    scene.asked.unlink()
    hold.set()
    wait_until(scene.inside, 30, "its input to be there")
    scene.looks_until(lambda: scene.is_sealed_again("a.csv") and not scene.tended.is_busy, "its input to be sealed")
    assert scene.states() == []


def test_an_upload_that_came_too_late_for_a_run_does_not_expire_by_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_and_be_late(*given: Any) -> bool:
        is_all = give(*given)
        scene.upload("late.csv")
        return is_all

    monkeypatch.setattr(input_handover, "give", give_and_be_late)
    Program.code = 0
    scene.upload("seen.csv")
    scene.ask()
    scene.looks_until(lambda: scene.states() == ["succeeded"], "the run to end")
    scene.looks_until(lambda: scene.is_sealed_again("late.csv", "seen.csv"), "what it left to be sealed")
    tidy(scene.staging, 0)
    assert scene.arrived() == ["late.csv"]
