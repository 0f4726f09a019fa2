"""The Cassandra that the platform runs itself: who may log in, and the sink that writes there."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.embed.core_store import ROLE, CoreStore
from millrace.exchange.core_store import CoreStoreFile, CoreStoreLogin
from millrace.exchange.home import Home
from millrace.exchange.places import places_below
from millrace.model.errors import Invalid, Unavailable
from millrace.model.sinks import SinkTarget
from millrace.sink.context import SinkContext
from millrace.sink.registry import open_connector, refuse_unable
from tests.support.cassandra import core_store as running_core_store
from tests.support.cassandra import may_log_in
from tests.support.revisions import ID, Revisions

TARGET = SinkTarget("coredms", "coredms")


def context_of(store: CoreStore | None, root: Path) -> SinkContext:
    """Of a tenant that may name no private address."""
    if store is not None:
        login = CoreStoreLogin(store.host, store.port, ROLE, store.password)
        CoreStoreFile(Home(root)).write(login)
    return SinkContext(places_below(root), tenant="acme", has_core_store=store is not None)


def test_only_the_platform_can_log_in(core_store: CoreStore) -> None:
    assert may_log_in(core_store, (ROLE, core_store.password))
    assert not may_log_in(core_store, ("cassandra", "cassandra"))
    assert not may_log_in(core_store, (ROLE, "cassandra"))
    assert not may_log_in(core_store, None)


def test_what_holds_the_password_is_readable_by_the_platform_alone(core_store: CoreStore, tmp_path: Path) -> None:
    context_of(core_store, tmp_path)
    home = core_store.child.launch.log.parent
    for path in (home / "password", home / "cassandra.yaml", Home(tmp_path).core_store_login):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert core_store.password not in " ".join(core_store.child.launch.argv)
    assert core_store.password not in repr(core_store)


def test_a_tenant_reaches_the_core_store_by_its_kind_and_not_by_its_address(
    core_store: CoreStore, tmp_path: Path
) -> None:
    context = context_of(core_store, tmp_path)
    sink = open_connector(TARGET, context)
    try:
        sink.check()
        sink.prepare(Revisions().add(ID), lambda _: Revisions().add(ID))
    finally:
        sink.close()
    by_address = SinkTarget("mine", "cassandra", True, {"hosts": [core_store.host], "port": core_store.port})
    with pytest.raises(Invalid, match="not a public address"):
        open_connector(by_address, context)


def test_without_a_core_store_the_kind_is_refused_in_words(tmp_path: Path) -> None:
    context = context_of(None, tmp_path)
    table = replace(Revisions().add(ID).table, targets=(TARGET,))
    with pytest.raises(Invalid, match="no coredms") as refused:
        refuse_unable(table, context)
    assert "MILLRACE_MYSIMBDP" in refused.value.remedy
    with pytest.raises(Unavailable, match="runs no core store"):
        open_connector(TARGET, context)


@pytest.mark.slow
def test_it_keeps_its_login_and_its_rows_when_it_is_killed(tmp_path: Path) -> None:
    with running_core_store(tmp_path / "cassandra") as first:
        sink = open_connector(TARGET, context_of(first, tmp_path))
        definition = Revisions().add(ID)
        sink.prepare(definition, lambda _: definition)
        sink.close()
    with running_core_store(tmp_path / "cassandra") as again:
        assert (again.port, again.password) == (first.port, first.password)
        assert may_log_in(again, (ROLE, again.password))
        assert not may_log_in(again, ("cassandra", "cassandra"))
        sink = open_connector(TARGET, context_of(again, tmp_path))
        sink.prepare(definition, lambda _: definition)
        sink.close()
