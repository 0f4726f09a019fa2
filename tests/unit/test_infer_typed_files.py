"""Files that have types of their own: the table gets these, what no table can hold is left out and named."""

import gzip
import io
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace.infer.proposing import Proposal, propose
from millrace.model.errors import Invalid


def types(proposal: Proposal) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in proposal.document["schema"]["fields"]}


def parquet(path: Path, table: pa.Table, **options: Any) -> Path:
    pq.write_table(table, path, **options)
    return path


def test_parquet_keeps_its_types_and_its_statistics_tell_what_may_be_null(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "small": pa.array([1, None, 3], pa.int16()),
            "unsigned": pa.array([1, 2, 2**64 - 1], pa.uint64()),
            "price": pa.array([None, None, None], pa.decimal128(9, 2)),
            "at": pa.array([0, 1, 2], pa.timestamp("ms")),
            "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
            "tags": pa.array([["x"], [], None], pa.list_(pa.string())),
        }
    )
    proposal = propose(parquet(tmp_path / "t.parquet", table, row_group_size=2))
    assert types(proposal) == {
        "id": "long",
        "small": ["null", "int"],
        "unsigned": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0},
        "price": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
        "at": {"type": "long", "logicalType": "timestamp-micros"},
        "kind": "string",
        "tags": ["null", {"type": "array", "items": ["null", "string"]}],
    }
    assert proposal.document["primary_key"] == ["id"]
    assert (proposal.checked.rows, proposal.checked.failed) == (3, 0)


def test_without_statistics_a_column_may_be_null(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", pa.table({"v": [1.5, 2.5]}), write_statistics=False)
    assert types(propose(path)) == {"v": ["null", "double"]}


def test_moments_finer_than_a_table_keeps_become_text(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns"))}))
    assert types(propose(path)) == {"id": "long", "at": "string"}


def test_what_no_table_can_hold_is_left_out(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], "_row": [1, 2], "none": pa.array([{}, {}], pa.struct([]))})
    proposal = propose(parquet(tmp_path / "t.parquet", table.drop(["none"])))
    assert list(types(proposal)) == ["id"]
    assert list(proposal.checked.draft.left_out) == ["_row"]
    assert proposal.document["unknown_fields"] == "ignore"


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(Invalid, match=r"t\.parquet cannot be read as Parquet"):
        propose(path)


def avro(fields: list[dict[str, Any]], records: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, {"type": "record", "name": "t", "fields": fields}, records, codec="deflate", sync_interval=50)
    return out.getvalue()


def test_avro_keeps_the_writers_types(tmp_path: Path) -> None:
    enum = {"type": "enum", "name": "side", "symbols": ["left", "right"]}
    fields = [
        {"name": "order_id", "type": ["null", "long"], "default": None},
        {"name": "side", "type": enum},
        {"name": "other", "type": ["null", "side"]},
        {"name": "both", "type": ["int", "string"]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    ]
    records = [{"order_id": n, "side": "left", "other": None, "both": n, "local": 0} for n in range(200)]
    path = tmp_path / "t.avro.gz"
    path.write_bytes(gzip.compress(avro(fields, records)))
    proposal = propose(path)
    assert types(proposal) == {"order_id": "long", "side": enum, "other": ["null", enum]}
    assert set(proposal.checked.draft.left_out) == {"both", "local"}
    assert proposal.document["primary_key"] == ["order_id"]
    assert (proposal.looked_at, proposal.checked.rows, proposal.checked.failed) == (200, 200, 0)


def test_a_key_that_is_null_behind_the_rows_looked_at_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millrace.infer.avro_file.READ_BYTES", 1)
    monkeypatch.setattr("millrace.infer.sampling._READ_BYTES", 1000)
    fields = [{"name": "id", "type": ["null", "long"]}, {"name": "v", "type": "int"}]
    path = tmp_path / "t.avro"
    path.write_bytes(avro(fields, [{"id": n if n < 990 else None, "v": n % 3} for n in range(1000)]))
    proposal = propose(path)
    assert proposal.looked_at < 900
    assert (proposal.document["primary_key"], types(proposal)["id"]) == ([], ["null", "long"])
    assert proposal.checked.failed == 0


def test_names_that_readers_differ_about_become_titles_of_plain_names(tmp_path: Path) -> None:
    inner = pa.array([{"first name": "a"}, {"first name": "b"}])
    table = pa.table({"Order id": [1, 2], "Größe": [0.5, 1.5], "plain": ["x", "y"], "who is": inner})
    proposal = propose(parquet(tmp_path / "t.parquet", table))
    fields = proposal.document["schema"]["fields"]
    assert [(field["name"], field.get("header")) for field in fields] == [
        ("order_id", "Order id"), ("groesse", "Größe"), ("plain", None), ("who_is", "who is"),
    ]  # fmt: skip
    assert proposal.document["primary_key"] == ["order_id"]
    record = (
        next(branch for branch in fields[3]["type"] if isinstance(branch, dict))
        if isinstance(fields[3]["type"], list)
        else fields[3]["type"]
    )
    assert [(part["name"], part["aliases"]) for part in record["fields"]] == [("first_name", ["first name"])]
    assert (proposal.checked.rows, proposal.checked.failed) == (2, 0)
