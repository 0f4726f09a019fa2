"""Records of the table log in, what the controller made of them out: answers, chunks it sent, rows of its store."""

import json
from base64 import b64encode
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from sqlalchemy import select

from millrace.control import controller as controller_module
from millrace.control.controller import Controller
from millrace.control.genuine import GenuineOps
from millrace.exchange.definitions import DefinitionStore
from millrace.exchange.home import Home
from millrace.exchange.stops import StopList
from millrace.model.ops import Applied, read_op
from millrace.model.ops.results import Refusal
from millrace.store.columns import metadata
from millrace.store.engine import ControlStore
from millrace.wire.client import Appended, Cluster, Record
from millrace.wire.signing import OpKey, OpTrust
from millrace.wire.topics import RAW_INPUT, TABLE_OPS

GOLDEN = Path(__file__).parents[1] / "golden" / "log"
BATCH = 7
RAW_PARTITIONS = 4
CLUSTER = "golden"


class _Topics:
    def __init__(self, cluster: Cluster) -> None: ...

    def partitions(self, topic: str) -> int:
        return RAW_PARTITIONS


class _Log:
    """Takes every record and remembers the chunks; the events stay in the store."""

    def __init__(self) -> None:
        self.chunks: list[list[Any]] = []

    def append(self, topic: str, key: bytes, value: bytes, partition: int, headers: Any = ()) -> "Future[Appended]":
        if topic == RAW_INPUT:
            self.chunks.append([partition, key.decode(), value])
        done: Future[Appended] = Future()
        done.set_result(Appended(topic, partition, len(self.chunks)))
        return done


def read_log(path: Path) -> list[Record]:
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return [
        Record(TABLE_OPS, line["partition"], line["offset"], line["at_ms"], b"", line["value"].encode())
        for line in lines
    ]


def trust_behind(records: Sequence[Record]) -> OpTrust:
    """As after an upgrade: the first key was made when the log held these records, and none of them is signed."""
    ends = {record.partition: record.offset + 1 for record in records}
    return OpTrust([OpKey.new(1, CLUSTER, ends)], CLUSTER)


def replay(records: list[Record], root: Path, genuine: GenuineOps | None = None) -> dict[str, Any]:
    """Applies the records in small batches, with a store and a home of their own below `root`."""
    genuine = genuine or GenuineOps(trust_behind(records))
    store, log, answers = ControlStore(f"sqlite:///{root / 'control.db'}"), _Log(), list[Applied]()
    with patch.object(controller_module, "Topics", _Topics):
        definitions, stops = DefinitionStore(Home(root)), StopList(Home(root))
        controller = Controller(store, Cluster(""), log, definitions, stops, genuine, answers.extend)  # type: ignore[arg-type]
    controller._positions = {}
    for start in range(0, len(records), BATCH):
        controller.apply(records[start : start + BATCH])
    outcome = {
        "answers": [[one.op_id, one.result.to_dict(), one.refusal and one.refusal.reason] for one in answers],
        "chunks": log.chunks,
        "store": _rows(store),
    }
    store.close()
    # As JSON says it: tuples are lists, keys are text.
    return dict(json.loads(json.dumps(outcome, default=_text)))


def _rows(store: ControlStore) -> dict[str, list[dict[str, Any]]]:
    with store.read() as connection:
        found = {
            table.name: [dict(row._mapping) for row in connection.execute(select(table).order_by(*table.primary_key))]
            for table in metadata.sorted_tables
        }
    for row in found["requests"]:
        # Earlier answers have no kind.
        row["refusal"] = row["refusal"] and Refusal.from_dict(row["refusal"]).reason
    return {name: rows for name, rows in found.items() if rows}


def _text(value: object) -> str:
    assert isinstance(value, bytes)
    return b64encode(value).decode()


def with_short_ops(line: str) -> str:
    """Of an op that waits, only the fields that are not at their defaults: earlier code wrote all that it was given."""
    if not line.startswith("waiting "):
        return line
    row = json.loads(line.removeprefix("waiting "))
    return str({**row, "op": read_op(row["op"]).to_dict()})


def text_of(outcome: dict[str, Any]) -> str:
    """One line for each answer, chunk and row, so that a difference is a short one."""
    parts = {"answers": outcome["answers"], "chunks": outcome["chunks"], **outcome["store"]}
    lines = (f"{name} {json.dumps(one, sort_keys=True, ensure_ascii=False)}\n" for name in parts for one in parts[name])
    return "".join(lines)


if __name__ == "__main__":
    for path in GOLDEN.glob("*.jsonl"):
        with TemporaryDirectory() as root:
            path.with_suffix(".state").write_text(text_of(replay(read_log(path), Path(root))))
