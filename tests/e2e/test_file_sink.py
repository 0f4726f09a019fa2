"""A table whose rows also go to files, on the real platform: the manifest of an import is there, and true."""

import hashlib
import json
from pathlib import Path
from typing import Any

import polars as pl

from tests.support.platform import RunningPlatform, record
from tests.support.waiting import wait_until


def test_an_import_s_files_are_those_of_its_manifest(platform: RunningPlatform, tmp_path: Path) -> None:
    out = platform.home.root / "exports"
    sinks: list[Any] = ["delta", {"kind": "files", "name": "export", "path": out.as_uri(), "partition_by": ["parity"]}]
    fields = (("id", "long"), ("parity", "string"))
    target = platform.declare("filing", record("events", *fields, key=(), sinks=sinks))
    file = tmp_path / "1.csv"
    file.write_text("id,parity\n" + "".join(f"{n},{'even' if n % 2 == 0 else 'odd'}\n" for n in range(200_000)))
    ended = platform.send(target, file)
    assert "export" in ended["sinks"]
    folder = out / "filing" / "events"
    manifest = folder / "_manifests" / f"{ended['id']}.json"
    wait_until(manifest.exists, 30, "the manifest")
    told = json.loads(manifest.read_text())
    assert told["rows"] == 200_000
    bodies = {one["path"]: (folder / one["path"]).read_bytes() for one in told["files"]}
    assert all(hashlib.sha256(bodies[one["path"]]).hexdigest() == one["sha256"] for one in told["files"])
    rows = pl.concat([pl.read_parquet(body) for body in bodies.values()])
    assert sorted(rows["id"]) == list(range(200_000))
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")} == bodies.keys()
