"""deltalake writes a table of a running platform; imports continue, and every reader sees one and the same table."""

from pathlib import Path

import deltalake
import pytest

from tests.support.lake import read_columns
from tests.support.platform import RunningPlatform, record

COLUMNS = ("id", "n", "note")


def csv(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["id,n,note", *rows]) + "\n")
    return path


@pytest.mark.parametrize("mode", ["auto", "never"])
def test_imports_continue_behind_another_writer(platform: RunningPlatform, tmp_path: Path, mode: str) -> None:
    fields = ("id", "string"), ("n", "long"), ("note", ["null", "string"])
    table = platform.declare(f"shared-{mode}", record("t", *fields, key=("id",), deletion_vectors=mode))
    root = platform.home.table(*table.split("/"))

    def send(*rows: str) -> None:
        assert platform.send(table, csv(tmp_path / "rows.csv", *rows))["state"] == "completed"

    send("a,1,first", "b,2,first", "c,3,first", "d,4,first")
    deltalake.DeltaTable(str(root)).update({"note": "'theirs'"}, predicate="id IN ('a', 'b')")
    send("a,10,second", "e,5,second")
    deltalake.DeltaTable(str(root)).delete("id = 'c'")
    deltalake.DeltaTable(str(root)).optimize.compact()
    send("f,6,third", "b,20,third")
    expected = [("a", 10, "second"), ("b", 20, "third"), ("d", 4, "first"), ("e", 5, "second"), ("f", 6, "third")]
    for reader, rows in read_columns(root, *COLUMNS).items():
        assert sorted(rows) == expected, reader
    assert platform.client.json("GET", "/v1/health").get("tables", []) == []
