"""A new sink is one file and one registered line: whatever the platform says and does about sinks follows from it."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from millrace.api.jobs.receipts import remaining
from millrace.api.jobs.retention import DAY_US, ask_to_let_go
from millrace.declare.table import parse_table
from millrace.deliver.delivery import Order, deliver
from millrace.deliver.ends import Ends
from millrace.exchange.home import Home
from millrace.exchange.mailboxes import Exchange, open_exchange
from millrace.exchange.places import Places, places_below
from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.lake.store import Store
from millrace.model.errors import Invalid
from millrace.model.table import Definition, TableDeclaration, define
from millrace.settings import Settings
from millrace.sink import registry
from millrace.sink.context import SinkContext
from millrace.sink.contract import StagedGroup
from millrace.sink.json_schemas import schema_named
from millrace.sink.planned import sink_plans
from millrace.sink.reference import page
from tests.support.queues import put, queue_at, queues_of
from tests.support.toy_sink import WRITTEN

TOY = {"kind": "toy", "name": "box", "shelf": "top"}
SCHEMA = {"type": "record", "name": "notes", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that says nothing but the one line."""
    metadata = tmp_path / "site" / "toys-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[millrace.sinks]\ntoy = tests.support.toy_sink:ToySettings\n")
    monkeypatch.syspath_prepend(str(metadata.parent))
    _forget()
    WRITTEN.clear()
    yield
    _forget()


def _forget() -> None:
    for cached in (registry._others, registry.settings_class, registry.connector_class):
        cached.cache_clear()


def document(**settings: Any) -> dict[str, Any]:
    return {"schema": SCHEMA, "primary_key": ["id"], "sinks": ["delta", {**TOY, **settings}]}


def context(places: Places | None = None) -> SinkContext:
    return SinkContext(places or places_below(Path("/nowhere")), tenant="acme")


def declared(**settings: Any) -> TableDeclaration:
    table = parse_table(document(**settings))
    registry.refuse_unable(table, context())
    return table


def test_it_can_be_declared_and_what_is_wrong_is_refused_in_words() -> None:
    assert "toy" in registry.kinds()
    declared(colour="green", key="env:MILLRACE_SECRET_ACME_BOX")
    for wrong, said, remedy in (
        ({"shelv": "top"}, "has no setting 'shelv'", "Did you mean 'shelf'?"),
        ({"colour": "blue"}, "has colour = 'blue'", "Choose one of: red, green."),
        ({"port": "four"}, "has port = 'four'", "Give a whole number."),
        ({"port": True}, "has port = True", "Give a whole number."),
        ({"host": "a:1/x"}, "has host = 'a:1/x'", "without port or path"),
        ({"key": "hush-hush"}, "has a value of 'key' that is no reference", "env:NAME"),
        ({"key": 12345}, "has a value of 'key' that is no reference", "env:NAME"),
    ):
        with pytest.raises(Invalid) as refused:
            declared(**wrong)
        assert said in refused.value.message, refused.value.message
        assert "Sink 'box' (toy)" in refused.value.message
        assert remedy in refused.value.remedy
        assert not any(secret in str(refused.value) for secret in ("hush-hush", "12345"))
    with pytest.raises(Invalid) as lacking:
        registry.refuse_unable(parse_table({**document(), "sinks": [{"kind": "toy", "shelv": "x"}]}), context())
    assert lacking.value.message == "Sink 'toy' (toy) needs 'shelf'; it has no setting 'shelv'."
    assert lacking.value.remedy.startswith("shelf: Where toys are put. Did you mean 'shelf'?")
    with pytest.raises(Invalid, match="as a whole"):
        registry.refuse_unable(parse_table({**document(), "publish": "atomic"}), context())


def defined(exchange: Exchange) -> Definition:
    table = define("acme", declared(colour="green"), 1)
    exchange.definitions.publish(table)
    return table


def test_rows_are_delivered_with_its_defaults_filled(tmp_path: Path) -> None:
    exchange = open_exchange(tmp_path)
    table = defined(exchange)
    target = table.table.targets[1]
    queue = queue_at(Home(tmp_path), "toy", "acme", "notes", "box")
    rows = pa.table({"id": [1], "_version": [5], "_import": ["imp"], "_row": [1], "_deleted": [False]})
    place = exchange.places.table("acme", "notes")
    staged = write_data_file(Store(place), rows, ("id",), "part", [StagedChunk("imp/0", 0, 1, 5)])
    put(queue, StagedGroup("acme", "notes", table.fingerprint, staged, (("imp", 0),), version=5), place)
    order = Order(queue.pins, target, tuple(queue.items()))
    # As a worker gets it.
    outcome = deliver(order, exchange, pickle.loads(pickle.dumps(context(exchange.places))))
    assert outcome.fault is None, outcome.message
    ((shelf, work),) = WRITTEN
    assert shelf == "green top"
    assert pa.Table.from_batches(work.rows[0].open())["id"].to_pylist() == [1]


def test_it_is_asked_to_delete_aged_rows_and_told_of_ends(tmp_path: Path) -> None:
    exchange = open_exchange(tmp_path)
    table, places = defined(exchange), exchange.places
    assert ask_to_let_go(exchange.ends, exchange.aged, table, 3 * DAY_US)
    parked = list(Ends(exchange.ends, places, queues_of(Home(tmp_path)), lambda _: table).park())
    assert [(key.target, target.kind) for key, target in parked] == [("box", "toy")]


def test_receipts_plans_page_and_schema_know_it() -> None:
    sinks = [{"table": "notes", "sinks": [{"name": "box", "kind": "toy"}, {"name": "x", "kind": "not-installed"}]}]
    left = remaining(Settings(), sinks, [])
    assert "notes: an empty table in sink 'box' (toy): drop it there." in left
    assert not any("'x'" in line for line in left)
    assert sink_plans(None, define("acme", declared(), 1)) == ["box: prepare the place for the table's rows"]
    text = page("toy")
    assert "| `colour` | `red`, `green` | `red` | Of the box. |" in text
    assert "A connector of another package" in text
    validator = jsonschema.Draft202012Validator(schema_named("table"))
    assert validator.is_valid(document(colour="green"))
    assert not validator.is_valid(document(colour="blue"))
    assert not validator.is_valid(document(shelv="x"))
