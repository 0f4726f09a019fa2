"""`MILLRACE_DURABILITY=power_cut` reaches all that acknowledges: tables, staged rows, the broker, the control store."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from millrace.embed.broker_properties import Ports, properties_of
from millrace.exchange.home import Home
from millrace.exchange.keys import KeyFiles
from millrace.exchange.mailboxes import open_exchange
from millrace.lake.store import Store
from millrace.seal.keyring import Keyring
from millrace.settings import Settings
from millrace.sink.delta.sink import OpenTables
from millrace.sink.delta.upkeep import Upkeep
from millrace.store.engine import ControlStore
from tests.support.lake import KEYED


@pytest.fixture(params=["process", "power_cut"])
def settings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    monkeypatch.setenv("MILLRACE_DURABILITY", request.param)
    return Settings()


def stores(settings: Settings) -> Iterator[Store]:
    places = open_exchange(settings.home, durable=settings.survives_power_cut).places
    keyring = Keyring(KeyFiles(Home(settings.home)), lambda: None)  # type: ignore[arg-type, return-value]
    yield places.table_store("acme", "t")
    yield places.error_store(keyring, "acme", "t")
    yield places.store_for_rejects(keyring, "acme", "t", None, "owner")
    yield places.staging_store(keyring, "acme", "t")
    yield OpenTables(Upkeep(), places).get(places.table("acme", "t"), KEYED).store


def test_every_store_of_a_table_follows_it(settings: Settings) -> None:
    expected = settings.durability == "power_cut"
    assert [store.durable for store in stores(settings)] == [expected] * 5


def test_the_embedded_broker_syncs_each_record(settings: Settings, tmp_path: Path) -> None:
    words = properties_of(Ports(1, 2), tmp_path, "password", durable=settings.survives_power_cut)
    assert ("log.flush.interval.messages=1\n" in words) == (settings.durability == "power_cut")


def test_the_control_store_syncs_each_transaction(settings: Settings, tmp_path: Path) -> None:
    store = ControlStore(settings.control_store(tmp_path / "control.db"), settings.survives_power_cut)
    with store.read() as connection:
        # 1 is NORMAL, 2 is FULL.
        assert connection.execute(text("PRAGMA synchronous")).scalar() == (2 if settings.survives_power_cut else 1)
    store.close()
