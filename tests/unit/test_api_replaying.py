"""Which rejected rows a replay takes: the whole application, the rules of the log, an error store on disk."""

from pathlib import Path

import pyarrow as pa

from millrace.declare.table import parse_table
from millrace.lake.errors_table import ERRORS_SCHEMA, REJECTED_SCHEMA, stored_rejected
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.model.chunk import ChunkVerdict
from millrace.model.imports import Counts
from millrace.model.names import chunk_id, new_id
from millrace.model.ops.imports import BeginImport, EndImport, SettleImport
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from tests.support.platform import record
from tests.support.whole_app import TOKEN, AppPlatform, whole_app

WRITTEN = {"encoding": "jsonl", "layout": None}


def an_import(platform: AppPlatform) -> str:
    platform.apply(DefineTenant("acme", agreement={"client": "acme"}))
    declaration = parse_table(record("notes", ("id", "long"))).to_dict()
    platform.apply(DefineTable("acme", "notes", declaration=declaration))
    import_id = new_id("imp")
    platform.apply(BeginImport("acme", "notes", id=import_id))
    platform.apply(EndImport("acme", import_id, chunks=1, rows=3, bytes=30, written=WRITTEN))
    counts = Counts(chunks=1, read=3, accepted=1, rejected=2)
    platform.apply(SettleImport("acme", import_id, counts=counts, durable={"delta": 1}, failure=None))
    return import_id


def reject(platform: AppPlatform, import_id: str, raw: dict[int, bytes], rule: str) -> None:
    reasons = [{"column": None, "rule": rule, "message": "not so", "value": None}]
    rows = [{"row": row, "line": row, "raw": body, "reasons": reasons} for row, body in raw.items()]
    rejected = pa.Table.from_pylist(rows, REJECTED_SCHEMA)
    stored = stored_rejected(ChunkVerdict(import_id, 0, 1, len(rows), 0, len(rows)), rejected)
    table = LakeTable(Store(platform.home.table_errors("acme", "notes")), TableSpec("errors", ERRORS_SCHEMA))
    known = StagedChunk(f"{chunk_id(import_id, 0)}@{rule}", 0, len(rows), 1)
    table.apply([write_data_file(table.store, stored, (), f"{import_id}-0", (known,))])


def test_what_a_sink_refused_is_left_out_as_its_bytes_are_not_kept(tmp_path: Path) -> None:
    with whole_app(tmp_path) as (platform, client):
        import_id = an_import(platform)
        reject(platform, import_id, {1: b'{"id": "x"}', 3: b'{"id": "y"}'}, "type")
        reject(platform, import_id, {2: b""}, "sink:warehouse")
        path, token = f"/v1/imports/{import_id}/errors", {"Authorization": f"Bearer {TOKEN}"}
        none = client.post(f"{path}/replay", json={"rule": "sink:warehouse"}, headers=token)
        assert none.json()["code"] == "nothing_to_replay"
        assert client.post(f"{path}/replay", json={}, headers=token).json()["rows"] == 2
        assert client.post(f"{path}/discard", json={}, headers=token).json()["rows"] == 1, "the sink's is still open"
