"""The first start of the embedded Cassandra, cut off between two steps: the role that everybody knows is locked."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from cassandra import InvalidRequest, OperationTimedOut

from millrace.embed import core_roles
from millrace.embed.core_roles import FIRST_ROLE, CoreRoles
from millrace.embed.core_store import ROLE
from millrace.embed.errors import ChildFailed


class Roles:
    """Those of a server, by name whether they can log in. `failing`: what statements raise, by their first word."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.login = {FIRST_ROLE: True}
        # The server remembers for a while that the first role may log in.
        self.remembers = False
        self.failing: dict[str, Exception] = {}
        monkeypatch.setattr(core_roles, "_session", self.session)
        monkeypatch.setattr(CoreRoles, "_answers", lambda _: True)

    @contextmanager
    def session(self, store: Any, role: str, password: str) -> Iterator["Roles | None"]:
        yield self if self.login.get(role) or (role == FIRST_ROLE and self.remembers) else None

    def execute(self, statement: str) -> list[Any]:
        word = statement.split(maxsplit=1)[0]
        if word in self.failing:
            raise self.failing[word]
        if word == "CREATE":
            self.login[ROLE] = True
        if word == "ALTER":
            self.login[FIRST_ROLE] = False
        return [SimpleNamespace(role=name, login=login) for name, login in self.login.items()]


def started() -> CoreRoles:
    """A platform that was just started."""
    store: Any = SimpleNamespace(password="secret", child=SimpleNamespace(launch=SimpleNamespace(log="cassandra.log")))
    return CoreRoles(store)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Roles:
    return Roles(monkeypatch)


@pytest.mark.parametrize("cut_off", [None, "CREATE", "ALTER"])
def test_a_start_that_was_cut_off_is_completed_by_the_next(server: Roles, cut_off: str | None) -> None:
    if cut_off:
        server.failing[cut_off] = KeyboardInterrupt()  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            started().are_set()
        server.failing.clear()
    assert started().are_set()
    assert server.login == {FIRST_ROLE: False, ROLE: True}


@pytest.mark.parametrize("failure", [InvalidRequest("not yet set up"), OperationTimedOut()])
@pytest.mark.parametrize("word", ["CREATE", "ALTER", "LIST"])
def test_a_statement_that_fails_is_tried_again(server: Roles, word: str, failure: Exception) -> None:
    roles = started()
    server.failing[word] = failure
    assert not roles.are_set()
    server.failing.clear()
    assert roles.are_set()
    assert server.login == {FIRST_ROLE: False, ROLE: True}


def test_a_stranger_ends_the_platform_also_after_a_start_that_was_cut_off(server: Roles) -> None:
    server.login |= {ROLE: True, "mallory": True}
    with pytest.raises(ChildFailed, match="mallory"):
        started().are_set()
    assert not server.login[FIRST_ROLE]


def test_the_roles_are_set_only_when_the_first_one_is_really_refused(server: Roles) -> None:
    server.remembers, roles = True, started()
    assert [roles.are_set(), roles.are_set()] == [False, False]
    server.remembers = False
    assert roles.are_set()
