"""Bad input gets a clear answer that names what and where, and nothing else is lost."""

import gzip
import http.client
import io
from pathlib import Path
from urllib.parse import urlsplit

import polars as pl
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from httpx2 import Client

from millrace.client import FileOptions, Millrace, Problem, Submission
from tests.support.platform import RunningPlatform, record
from tests.support.waiting import wait_until

NOTES = record("notes", ("id", "long"), ("text", ["null", "string"]), key=("id",))
HEAD = "id,text\n"


@pytest.fixture(scope="module")
def target(platform: RunningPlatform) -> str:
    return platform.declare("careful", NOTES)


def write(path: Path, body: str | bytes) -> Path:
    path.write_bytes(body.encode() if isinstance(body, str) else body)
    return path


def refused(platform: RunningPlatform, target: str, path: Path, **options: object) -> Problem:
    tenant, table = target.split("/")
    with pytest.raises(Problem) as problem:
        platform.client.imports.send_file(path, Submission(tenant, table, FileOptions(**options)))  # type: ignore[arg-type]
    return problem.value


def test_a_file_without_its_header_is_refused(platform: RunningPlatform, target: str, tmp_path: Path) -> None:
    assert refused(platform, target, write(tmp_path / "empty.csv", "")).code == "no_header"


@pytest.mark.parametrize(
    ("body", "read", "rejected"),
    [
        (HEAD, 0, 0),
        (HEAD.strip(), 0, 0),
        (HEAD + "1,a", 1, 0),
        (HEAD + "1,a,b\n2,b\n", 2, 1),
        (HEAD + "1\n2,b\n", 2, 1),
        (HEAD + "1,\x00\n2,b\n", 2, 1),
        (HEAD.encode() + b"1,\xff\xfe\n2,b\n", 2, 1),
        (HEAD + "1," + "x" * 3_000_000 + "\n2,b\n", 2, 0),
        (HEAD + "\n\n1,a\n\n", 1, 0),
        ("\ufeff" + HEAD + "1,ü\n", 1, 0),
    ],
    ids=["header", "only-header", "unended", "too-many", "too-few", "nul", "utf-8", "3MB-cell", "blank", "bom"],
)  # fmt: skip
def test_odd_files_are_read_row_by_row(
    platform: RunningPlatform, target: str, tmp_path: Path, body: str | bytes, read: int, rejected: int
) -> None:
    ended = platform.send(target, write(tmp_path / "odd.csv", body))
    assert ended["state"] == "completed", ended["error"]
    assert ended["rows"] == {"read": read, "accepted": read - rejected, "rejected": rejected, "ignored": 0}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "latin-1"])
def test_encodings(platform: RunningPlatform, target: str, tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path / "encoded.csv", (HEAD + "77,Grüße\n").encode(encoding))
    assert platform.send(target, path, encoding=encoding)["rows"]["accepted"] == 1
    stored = pl.scan_delta(str(platform.home.table("careful", "notes"))).filter(pl.col("id") == 77).collect()
    assert stored["text"].to_list() == ["Grüße"]


def test_a_file_of_which_no_row_is_good_has_failed(platform: RunningPlatform, target: str, tmp_path: Path) -> None:
    ended = platform.send(target, write(tmp_path / "bad.csv", HEAD + "x,a\ny,b\n"))
    assert ended["state"] == "failed"
    assert ended["error"]["code"] == "nothing_accepted"
    assert len(list(platform.client.rejected.list(ended["id"]))) == 2


def test_a_quote_that_never_closes_costs_one_row(platform: RunningPlatform, target: str, tmp_path: Path) -> None:
    rows = 400_000
    lines = [f"{n},text {n:030d}" for n in range(1, rows + 1)]
    lines[999] = '1000,"open'
    ended = platform.send(target, write(tmp_path / "open.csv", HEAD + "\n".join(lines) + "\n"))
    assert ended["rows"] == {"read": rows, "accepted": rows - 1, "rejected": 1, "ignored": 0}
    (rejected,) = platform.client.rejected.list(ended["id"])
    assert rejected["row"] == 1000
    assert rejected["reasons"][0]["rule"] == "unclosed_quote"


def test_a_huge_cell_costs_one_row_and_little_memory(platform: RunningPlatform, target: str, tmp_path: Path) -> None:
    before = platform.part("server").memory_info().rss
    path = tmp_path / "huge.csv"
    with path.open("wb") as file:
        file.write(HEAD.encode() + b"1,")
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b"\n2,b\n")
    ended = platform.send(target, path)
    assert ended["rows"] == {"read": 2, "accepted": 1, "rejected": 1, "ignored": 0}
    (rejected,) = platform.client.rejected.list(ended["id"])
    assert rejected["reasons"][0]["rule"] == "row_too_long"
    assert platform.part("server").memory_info().rss - before < 120 << 20


@pytest.mark.parametrize(
    ("name", "body", "options", "words"),
    [
        ("unknown column", "id,text,more\n1,a,b\n", {}, ["more"]),
        ("missing column", "text\na\n", {}, ["id"]),
        ("repeated column", "id,id\n1,1\n", {}, ["id"]),
        ("100k columns", ",".join(f"c{n}" for n in range(100_000)) + "\n1\n", {}, ["column"]),
        ("truncated gzip", gzip.compress(("1,a\n" * 100_000).encode())[:-50], {"header": False}, ["gzip"]),
        ("not gzip", b"\x1f\x8bnonsense", {"compression": "gzip"}, ["gzip"]),
        ("a JSON array", '[{"id": 1}]', {"format": "jsonl"}, ["line"]),
        ("not Parquet", "PAR1 nonsense", {"format": "parquet"}, ["Parquet"]),
        ("not Avro", "Obj nonsense", {"format": "avro"}, ["Avro"]),
    ],
)
def test_files_that_cannot_be_read_fail_with_the_reason(
    platform: RunningPlatform,
    target: str,
    tmp_path: Path,
    name: str,
    body: str | bytes,
    options: dict[str, object],
    words: list[str],
) -> None:
    problem = refused(platform, target, write(tmp_path / "unreadable", body), **options)
    assert problem.status in (413, 422)
    assert all(word.lower() in str(problem).lower() for word in words), str(problem)
    assert problem.import_id is not None
    ended = platform.ended(problem.import_id)
    assert ended["state"] == "failed"
    assert ended["error"]["message"]


def test_a_gzip_bomb_is_stopped_early(platform: RunningPlatform, target: str, tmp_path: Path) -> None:
    with gzip.open(tmp_path / "bomb.csv.gz", "wb", compresslevel=9) as bomb:
        bomb.write(HEAD.encode())
        for _ in range(1000):
            bomb.write(b"1," + b"x" * 1_000_000 + b"\n")
    problem = refused(platform, target, tmp_path / "bomb.csv.gz")
    assert problem.status == 413
    assert platform.part("server").memory_info().rss < 400 << 20


def test_a_parquet_file_of_another_schema(platform: RunningPlatform, target: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [{"a": 1}], "text": ["x"]}), tmp_path / "other.parquet")
    problem = refused(platform, target, tmp_path / "other.parquet", format="parquet")
    assert "id" in str(problem)


def test_a_file_over_its_limit(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("limited", {**NOTES, "max_file_size_mb": 1})
    path = write(tmp_path / "large.csv", HEAD + "1,aaaaaaaaaaaaaaaaaaaa\n" * 100_000)
    assert refused(platform, target, path).status == 413
    packed = write(tmp_path / "large.csv.gz", gzip.compress(path.read_bytes()))
    assert refused(platform, target, packed).status == 413


def test_who_may_not_see_it_is_told_that_it_is_not_there(
    platform: RunningPlatform, target: str, tmp_path: Path
) -> None:
    platform.declare("neighbour", NOTES)
    token = platform.client.tokens.create("neighbour-writer", tenant="neighbour")["token"]
    mine = platform.send(target, write(tmp_path / "mine.csv", HEAD + "1,secret\n"))
    with Millrace(platform.client.endpoint.url, token) as neighbour:
        forbidden = refused_by(neighbour, "careful", "notes", tmp_path / "mine.csv")
        missing = refused_by(neighbour, "nobody", "notes", tmp_path / "mine.csv")
        assert (forbidden.status, missing.status) == (404, 404)
        for call in (
            lambda: neighbour.imports.show(mine["id"]),
            lambda: neighbour.imports.cancel(mine["id"]),
            lambda: neighbour.tables.show("careful", "notes"),
            lambda: neighbour.query("select * from careful.notes"),
            lambda: list(neighbour.rejected.list(mine["id"])),
            lambda: neighbour.tokens.list("careful"),
        ):
            with pytest.raises(Problem) as problem:
                call()
            assert problem.value.status in (404, 422)
        assert all(event["source"].endswith("/neighbour") for event in neighbour.events.page()["items"])
    with Millrace(platform.client.endpoint.url, "mr_wrong") as stranger, pytest.raises(Problem) as problem:
        stranger.tenants.list()
    assert problem.value.status == 401


def refused_by(client: Millrace, tenant: str, table: str, path: Path) -> Problem:
    with pytest.raises(Problem) as problem:
        client.imports.send_file(path, Submission(tenant, table))
    return problem.value


@pytest.mark.parametrize("name", ["../etc", "a" * 300, "x%00", "..%2f..", "é"])
def test_hostile_names(platform: RunningPlatform, name: str, tmp_path: Path) -> None:
    client = platform.client
    for call in (
        lambda: client.tenants.apply(name, {"client": name}),
        lambda: client.tables.apply("careful", name, {**NOTES, "table": name}),
        lambda: client.imports.send_file(write(tmp_path / "x.csv", HEAD), Submission("careful", name)),
    ):
        with pytest.raises(Problem) as problem:
            call()
        assert problem.value.status in (404, 405, 422)
    assert {folder.name for folder in platform.home.root.iterdir()} >= {"lake"}
    assert not (platform.home.lake.parent / "etc").exists()


def test_an_import_into_no_table(platform: RunningPlatform, tmp_path: Path) -> None:
    problem = refused_by(platform.client, "careful", "nowhere", write(tmp_path / "x.csv", HEAD))
    assert problem.status == 404
    assert "careful/nowhere" in str(problem)


def test_a_client_that_vanishes_is_given_up_after_a_while(platform: RunningPlatform, target: str) -> None:
    endpoint = urlsplit(platform.client.endpoint.url)
    connection = http.client.HTTPConnection(str(endpoint.hostname), endpoint.port)
    connection.putrequest("POST", "/v1/tenants/careful/tables/notes/imports")
    connection.putheader("Authorization", f"Bearer {platform.client.endpoint.token}")
    connection.putheader("Idempotency-Key", "vanishing")
    connection.putheader("Content-Length", str(1 << 30))
    connection.endheaders()
    connection.send(HEAD.encode() + b"1,aaaaaaaaaaaaaaaaaaaaaaaaaaaa\n" * 100_000)

    def begun() -> str | None:
        items = platform.client.imports.list(tenant="careful", limit=5)
        return next((item["id"] for item in items if item["state"] in ("admitted", "receiving")), None)

    import_id = wait_until(begun, 20, "the upload to begin")
    connection.close()
    ended = platform.ended(import_id)
    assert ended["state"] == "failed"
    assert ended["error"]["code"] == "expired"
    assert ended["rows"]["read"] == sum(ended["rows"][verdict] for verdict in ("accepted", "rejected", "ignored"))


def test_a_cancelled_import_stops_and_adds_up(platform: RunningPlatform, tmp_path: Path) -> None:
    target = platform.declare("cancelling", NOTES)
    path = write(tmp_path / "long.csv", HEAD + "".join(f"{n},text number {n:040d}\n" for n in range(700_000)))
    tenant, table = target.split("/")
    begun = platform.client.imports.send_file(path, Submission(tenant, table))
    platform.client.imports.cancel(begun["id"])
    ended = platform.ended(begun["id"])
    rows = ended["rows"]
    assert ended["state"] in ("cancelled", "completed")
    assert rows["read"] == rows["accepted"] + rows["rejected"] + rows["ignored"]
    stored = pl.scan_delta(str(platform.home.table(tenant, table))).select(pl.len()).collect().item()
    assert stored == rows["accepted"]


def test_seed_002_routes(platform: RunningPlatform, tmp_path: Path) -> None:
    platform.declare("seeded", NOTES)
    headers = {"Authorization": f"Bearer {platform.client.endpoint.token}"}
    with Client(base_url=platform.client.endpoint.url, headers=headers) as http_client:
        sent = http_client.post("/upload-file/seeded", files={"file": ("n.csv", io.BytesIO(b"id,text\n1,a\n"))})
        assert sent.status_code == 202
        assert platform.ended(sent.json()["id"])["rows"]["accepted"] == 1
        listed = http_client.get("/tenant/seeded").json()
        assert [entry["file"] for entry in listed["files"]] == ["n.csv"]
        platform.client.tables.apply("seeded", "second", {**NOTES, "table": "second"})
        unclear = http_client.post("/upload-file/seeded", files={"file": ("n.csv", io.BytesIO(b"id,text\n1,a\n"))})
        assert unclear.status_code == 422
        assert "second" in unclear.json()["detail"]


def test_the_platform_is_still_well(platform: RunningPlatform) -> None:
    assert platform.client.health()["status"] == "ok"
    assert psutil.pid_exists(platform.process.pid)
