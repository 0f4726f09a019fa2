"""Ops with a MAC: what a server signed is taken once, and whatever anybody else does to the table log is passed over."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millrace.control.genuine import GenuineOps
from millrace.exchange.home import Home
from millrace.exchange.op_keys import OpKeyFiles
from millrace.model.errors import Corrupt
from millrace.model.ops import Op, read_op
from millrace.model.ops.spans import BeginSpan
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from millrace.wire.client import Record
from millrace.wire.envelope import pack, unpack
from millrace.wire.signing import Mark, OpKey, OpTrust, sign
from millrace.wire.topics import EVENTS, TABLE_OPS
from tests.support.control import declared
from tests.support.golden_log import GOLDEN, read_log, replay, trust_behind

CLUSTER = "here"
FIRST = OpKey.new(1, CLUSTER, {0: 0})
TRUST = OpTrust([FIRST], CLUSTER)
ACME = DefineTenant("acme", id="op_1", agreement={"client": "acme"})


def record(offset: int, op: Op[Any], key: OpKey | None = FIRST, count: int | None = None, partition: int = 0) -> Record:
    value = pack(op.to_dict())
    if key is not None:
        value = sign(key, TABLE_OPS, partition, Mark("ab" * 8, offset + 1 if count is None else count), value)
    return Record(TABLE_OPS, partition, offset, 1_700_000_000_000 + offset, b"", value)


def tenants(records: list[Record], root: Path, trust: OpTrust = TRUST) -> dict[str, Any]:
    """What the controller knows after it has read the records: the agreement of each tenant."""
    store = replay(records, root, GenuineOps(trust))["store"]
    assert store["positions"][0]["next_offset"] == records[-1].offset + 1, "nothing may stop the log"
    return {row["name"]: row["agreement"] for row in store.get("tenants", [])}


def tampered(name: str) -> Record:
    genuine = record(0, DefineTenant("victim", id="op_0", agreement={"command": ["true"]}))
    said = genuine.value
    other = OpKey.new(1, CLUSTER, {0: 0})
    last = said.rindex(b',"mac"')
    of_topic = sign(FIRST, EVENTS, 0, Mark("ab" * 8, 1), said[:last] + b"}")
    forgeries = {
        "unsigned": said[:last] + b"}",
        "another key": sign(other, TABLE_OPS, 0, Mark("ab" * 8, 1), said[:last] + b"}"),
        "a key that is not there": said.replace(b'"mac":"0001', b'"mac":"0002'),
        "key zero": said.replace(b'"mac":"0001', b'"mac":"0000'),
        "another tenant": said.replace(b"victim", b"robber"),
        "another kind": said.replace(b"define_tenant", b"restore_tenant"),
        "another body": said.replace(b"true", b"fals"),
        "another op id": said.replace(b"op_0", b"op_9"),
        "another place among the signer's": said.replace(b".1.", b".2."),
        "another signer": said.replace(b"abab", b"cdcd"),
        "a field behind the MAC": said[:-1] + b',"tenant":"robber"}',
        "made for another topic": of_topic,
        "made for another partition": record(0, ACME, partition=1).value,
        "nothing": b"",
        "no JSON": b"\xff\x00",
    }
    assert forgeries[name] != said
    return replace(genuine, value=forgeries[name])


NAMES = (
    "unsigned", "another key", "a key that is not there", "key zero", "another tenant", "another kind", "another body",
    "another op id", "another place among the signer's", "another signer", "a field behind the MAC",
    "made for another topic", "made for another partition", "nothing", "no JSON",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_forged_record_is_passed_over_and_the_next_one_applied(name: str, tmp_path: Path) -> None:
    assert tenants([tampered(name), record(1, ACME)], tmp_path) == {"acme": {"client": "acme"}}


def test_a_signed_op_says_what_it_said_before() -> None:
    assert read_op(unpack(record(0, ACME).value)) == ACME


def test_a_copy_of_a_genuine_record_is_passed_over(tmp_path: Path) -> None:
    """The tenant's first agreement does not come back, neither in the same batch nor later."""
    first = record(0, ACME)
    second = record(1, DefineTenant("acme", id="op_2", agreement={"client": "new"}))
    fillers = [record(n, BeginSpan("acme", f"s{n}", id=f"op_s{n}")) for n in range(3, 20)]
    log = [first, second, replace(first, offset=2), *fillers, replace(first, offset=20)]
    genuine = GenuineOps(TRUST)
    (tenant,) = replay(log, tmp_path, genuine)["store"]["tenants"]
    assert tenant["agreement"] == {"client": "new"}
    assert "2 records" in genuine.health()
    assert "millrace.table-ops/0/20: it is a copy of an earlier record" in genuine.health()


def test_each_partition_has_a_count_of_its_own(tmp_path: Path) -> None:
    log = [record(5, ACME, count=7), record(0, BeginSpan("acme", "night", id="op_2"), count=1, partition=1)]
    found = replay(log, tmp_path, GenuineOps(TRUST))["store"]
    assert [row["name"] for row in found["spans"]] == ["night"]
    assert sorted((row["partition"], row["taken"]) for row in found["signers"]) == [(0, 7), (1, 1)]


def test_a_forged_record_beside_one_that_cannot_be_stored_stops_nobody(tmp_path: Path) -> None:
    """The batch is tried again record by record; what was signed in it is not taken for a copy then."""
    nameless = DefineTable("acme", "third", id="op_2", declaration={**declared("third"), "name": None})
    log = [record(0, ACME), tampered("unsigned"), record(2, nameless), record(3, BeginSpan("acme", "day", id="op_3"))]
    log[1] = replace(log[1], offset=1)
    found = replay(log, tmp_path, GenuineOps(TRUST))["store"]
    assert [row["name"] for row in found["tenants"]] == ["acme"]
    assert [row["name"] for row in found["spans"]] == ["day"]


def test_health_names_what_was_passed_over(tmp_path: Path) -> None:
    genuine = GenuineOps(TRUST)
    assert genuine.health() == "ok"
    replay([tampered("unsigned"), record(1, ACME)], tmp_path, genuine)
    assert genuine.health().startswith("1 records of the table log were not written by this platform")
    assert "millrace.table-ops/0/0: it has no MAC" in genuine.health()


def test_an_old_log_is_taken_up_to_where_it_ended_and_not_beyond(tmp_path: Path) -> None:
    old = read_log(GOLDEN / "every_kind.jsonl")
    trust = trust_behind(old)
    (key,) = trust.keys
    end = key.since[0]
    unsigned = record(end, DefineTenant("robber", id="op_r", agreement={}), key=None)
    before = replay(old, _folder(tmp_path, "before"), GenuineOps(trust))["store"]["tenants"]
    after = replay([*old, unsigned, record(end + 1, ACME, key)], _folder(tmp_path, "after"), GenuineOps(trust))
    names = {row["name"] for row in after["store"]["tenants"]}
    assert names == {row["name"] for row in before} | {"acme"}


def test_a_key_that_was_replaced_signs_nothing_more(tmp_path: Path) -> None:
    second = OpKey.new(2, CLUSTER, {0: 2})
    trust = OpTrust([FIRST, second], CLUSTER)
    robber = DefineTenant("robber", id="op_r", agreement={})
    log = [record(0, ACME), record(2, robber, FIRST), record(3, DefineTenant("bolt", id="op_3", agreement={}), second)]
    assert set(tenants(log, tmp_path, trust)) == {"acme", "bolt"}


def test_in_another_cluster_offsets_excuse_nothing(tmp_path: Path) -> None:
    trust = OpTrust([OpKey.new(1, "elsewhere", {0: 100})], CLUSTER)
    unsigned = record(0, DefineTenant("robber", id="op_r", agreement={}), key=None)
    assert set(tenants([unsigned, record(1, ACME, trust.keys[0])], tmp_path, trust)) == {"acme"}


def test_keys_are_private_files_that_read_as_they_were_written(tmp_path: Path) -> None:
    files = OpKeyFiles(Home(tmp_path))
    keys = [OpKey.new(number, CLUSTER, {0: number, 3: 5}) for number in (1, 2)]
    for key in keys:
        files.add(key)
    assert files.read() == keys
    assert (tmp_path / "op-keys").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "op-keys").iterdir()} == {0o600}
    assert keys[0].secret.hex() not in repr(keys)


def test_a_lost_or_damaged_key_is_named(tmp_path: Path) -> None:
    files = OpKeyFiles(Home(tmp_path))
    for number in (1, 2):
        files.add(OpKey.new(number, CLUSTER, {}))
    (tmp_path / "op-keys" / "0002").write_text(json.dumps({"key": "00", "cluster": "", "since": {}}))
    with pytest.raises(Corrupt, match="0002 holds no key"):
        files.read()
    (tmp_path / "op-keys" / "0001").unlink()
    with pytest.raises(Corrupt, match="0001 is missing"):
        files.read()


def _folder(root: Path, name: str) -> Path:
    (root / name).mkdir()
    return root / name
