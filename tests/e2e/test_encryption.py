"""A tenant whose agreement asks for encryption: on its way nothing of its rows can be read, and everything works as ever."""

from base64 import b64decode
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard

from millrace.client import Problem
from millrace.wire.client import LogReader
from millrace.wire.envelope import unpack, unpack_stamp
from millrace.wire.offsets import end_offsets
from millrace.wire.topics import RAW_INPUT, TABLE_OPS
from tests.support.platform import RunningPlatform, record
from tests.support.waiting import wait_until

TENANT = "sealed"
MARK = "nobody shall read this"


@pytest.fixture
def target(platform: RunningPlatform) -> str:
    """A table with a sink elsewhere."""
    out = platform.home.root / "exports"
    sinks: list[Any] = ["delta", {"kind": "files", "name": "export", "path": out.as_uri(), "format": "jsonl"}]
    platform.client.tenants.apply(TENANT, {"client": TENANT, "encryption": True})
    document = record("letters", ("id", "long"), ("text", ["null", "string"]), key=("id",), sinks=sinks)
    document["sinks"][1]["mode"] = "changelog"
    platform.client.tables.apply(TENANT, "letters", document)
    return f"{TENANT}/letters"


def plain_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and MARK.encode() in _content(path)]


def _content(path: Path) -> bytes:
    """Nothing of a file that the platform has just removed."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def records(platform: RunningPlatform, topic: str) -> list[bytes]:
    """What the topic holds now."""
    cluster = platform.cluster
    ends = end_offsets(cluster, topic)
    reader = LogReader(cluster, topic, {number: low for number, (low, _) in ends.items()}, may_have_gaps=True)
    found: list[bytes] = []
    read = {number: low for number, (low, _) in ends.items()}

    def is_read() -> bool:
        """Up to where the topic ended; what was trimmed meanwhile does not come."""
        for one in reader.poll(1000, 0.5):
            found.append(one.value)
            read[one.partition] = one.offset + 1
        lows = {number: low for number, (low, _) in end_offsets(cluster, topic).items()}
        return all(max(read[number], lows[number]) >= end for number, (_, end) in ends.items())

    try:
        wait_until(is_read, 60, f"the records of {topic}")
    finally:
        reader.close()
    return found


def in_delta(platform: RunningPlatform) -> dict[int, str]:
    rows = platform.client.query(f"select id, text from {TENANT}.letters", max_rows=10_000)["rows"]
    return {row[0]: row[1] for row in rows}


def is_readable(payload: bytes | memoryview) -> bool:
    try:
        return MARK.encode() in zstandard.ZstdDecompressor().decompress(payload, max_output_size=1 << 24)
    except zstandard.ZstdError:
        return False


def test_rows_are_sealed_on_their_way_and_plain_at_their_goals(
    platform: RunningPlatform, target: str, tmp_path: Path
) -> None:
    lines = "".join(f"{n},{MARK} {n}\n" for n in range(5_000))
    (tmp_path / "1.csv").write_text(f"id,text\n{lines}x,{MARK} rejected\n")
    first = platform.send(target, tmp_path / "1.csv")
    pl.DataFrame({"id": [1, 70_000], "text": [f"{MARK} p", f"{MARK} q"]}).write_parquet(tmp_path / "2.parquet")
    platform.send(target, tmp_path / "2.parquet")
    with platform.client.rows.sender(TENANT, "letters") as stream:
        stream.send([{"id": 2, "text": f"{MARK} streamed"}, {"id": "y", "text": MARK}])
        assert (stream.finish().accepted, stream.summary.rejected) == (1, 1)

    # 1. Whoever asks gets what was sent.
    found = in_delta(platform)
    assert len(found) == 5_001
    assert [found[n] for n in (0, 1, 2, 70_000)] == [f"{MARK} {w}" for w in ("0", "p", "streamed", "q")]
    wait_until(lambda: len(plain_below(platform.home.root / "exports" / TENANT)) >= 3, 30, "the files are written")
    (shown,) = platform.client.rejected.list(first["id"])
    assert shown["raw"] == f"x,{MARK} rejected"

    # 2. What lies in Kafka and on the disk between them cannot be read.
    home = platform.home
    for folder in (home.errors / TENANT, home.root / "staged", home.parked, home.staging):
        assert plain_below(folder) == [], folder
    assert list((home.root / "staged" / TENANT).rglob("*.parquet")), "rows were staged, sealed"
    appended = [
        op for op in map(unpack, records(platform, TABLE_OPS)) if (op["tenant"], op["kind"]) == (TENANT, "append")
    ]
    assert appended
    assert not any(is_readable(b64decode(op["body"]["payload"])) for op in appended)
    chunks = [unpack_stamp(one) for one in records(platform, RAW_INPUT)]
    of_mine = [
        (header, payload) for header, payload in chunks if header and home.data_key(TENANT, header.import_id).exists()
    ]
    assert of_mine
    assert all(header.key == header.import_id and not is_readable(payload) for header, payload in of_mine)

    # 3. A sealed reject can be sent again.
    again = platform.ended(platform.client.rejected.replay(first["id"])["import"])
    assert again["rows"]["rejected"] == 1, "judged again, and kept again"


def test_a_rotated_key_reads_what_the_old_one_sealed_and_a_destroyed_one_nothing(
    platform: RunningPlatform, target: str, tmp_path: Path
) -> None:
    (tmp_path / "1.csv").write_text(f"id,text\n80000,kept\nx,{MARK}\n")
    ended = platform.send(target, tmp_path / "1.csv")
    assert "version 1" in platform.cli("tenant", "key", "show", TENANT).stdout
    rotated = platform.cli("tenant", "key", "rotate", TENANT)
    assert (rotated.returncode, "version 2" in rotated.stdout) == (0, True)
    assert [row["raw"] for row in platform.client.rejected.list(ended["id"])] == [f"x,{MARK}"]
    platform.send(target, tmp_path / "1.csv")

    assert platform.cli("tenant", "key", "destroy", TENANT).returncode == 1, "without a confirmation nothing happens"
    destroyed = platform.cli("tenant", "key", "destroy", TENANT, "--confirm", TENANT)
    assert destroyed.returncode == 0, destroyed.stderr
    with pytest.raises(Problem) as refused:
        list(platform.client.rejected.list(ended["id"]))
    assert refused.value.code == "key_gone"
    assert in_delta(platform)[80_000] == "kept", "rows in sinks stay"
    assert platform.send(target, tmp_path / "1.csv")["state"] == "completed", "what comes later has a new key"
