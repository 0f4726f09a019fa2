"""What is swept, and what is not."""

import os
import time
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from millrace.api.jobs.sweeping import EVENTS_KEPT, REQUESTS_KEPT, STOPS_KEPT, sweep
from millrace.exchange.home import Home
from millrace.exchange.mailboxes import open_exchange
from millrace.store import tables as t
from millrace.store.engine import ControlStore


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.stops.mkdir()
    home.staging.mkdir()
    return home


def test_old_and_answered_goes_new_or_open_stays(home: Home) -> None:
    store = ControlStore(f"sqlite:///{home.store}")
    now = time.time()
    old_request = int((now - REQUESTS_KEPT.total_seconds() - 60) * 1e6)
    old_event = int(now - EVENTS_KEPT.total_seconds() - 60)
    request = {"kind": "k", "tenant": "a", "subject": "s"}
    event = {"tenant": "a", "event": {}}
    with store.write() as connection:
        connection.execute(
            insert(t.requests),
            [
                {**request, "id": "old", "requested_us": old_request, "applied": True},
                {**request, "id": "waiting", "requested_us": old_request, "applied": False},
                {**request, "id": "new", "requested_us": int(now * 1e6), "applied": True},
            ],
        )
        connection.execute(
            insert(t.events),
            [
                {**event, "id": "old", "published": True, "kept_from": old_event},
                {**event, "id": "unsent", "published": False, "kept_from": old_event},
                {**event, "id": "new", "published": True, "kept_from": int(now)},
            ],
        )
    for name, age in (("imp_old", STOPS_KEPT.total_seconds() + 60), ("imp_new", 0)):
        mark = home.stops / name
        mark.touch()
        os.utime(mark, (now - age, now - age))
    sweep(store, open_exchange(home.root))
    with store.read() as connection:
        assert set(connection.execute(select(t.requests.c.id)).scalars()) == {"waiting", "new"}
        assert set(connection.execute(select(t.events.c.id)).scalars()) == {"unsent", "new"}
    assert os.listdir(home.stops) == ["imp_new"]
    store.close()


def test_spooled_files_do_not_outlive_their_server(home: Home) -> None:
    (home.staging / "parquet-1").write_bytes(b"half")
    open_exchange(home.root).places.clear_spool()
    assert os.listdir(home.staging) == []
