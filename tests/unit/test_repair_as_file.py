"""Rejected rows as a file in their original dialect: corrected and sent back, it closes the rows it holds, and no other."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from starlette.testclient import TestClient

from tests.support.judged_app import JudgedPlatform, command
from tests.support.platform import record
from tests.support.small_server import SmallServer
from tests.support.whole_app import TOKEN, served_app, whole_app

AUTH = {"Authorization": f"Bearer {TOKEN}"}
FIELDS: list[tuple[str, Any]] = [("name", "string"), ("amount", "long"), ("note", ["null", "string"])]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[JudgedPlatform, TestClient]]:
    with whole_app(tmp_path_factory.mktemp("as-file"), JudgedPlatform) as (platform, client):
        assert isinstance(platform, JudgedPlatform)
        # No table has a key: only the numbers say which row is which.
        platform.declare(
            record("headed", *FIELDS, csv={"header": True}),
            record("bare", *FIELDS, csv={"header": False}),
            record("one", ("amount", "long"), csv={"header": True}),
        )
        yield platform, client


@pytest.fixture(scope="module")
def platform(scene: tuple[JudgedPlatform, TestClient]) -> JudgedPlatform:
    return scene[0]


@pytest.fixture(scope="module")
def client(scene: tuple[JudgedPlatform, TestClient]) -> TestClient:
    return scene[1]


def send(client: TestClient, table: str, body: bytes, **params: Any) -> str:
    path = f"/v1/tenants/acme/tables/{table}/imports"
    answer = client.post(path, content=body, params=params, headers=AUTH)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def as_file(client: TestClient, import_id: str, **params: str) -> bytes:
    path = f"/v1/imports/{import_id}/errors/export"
    answer = client.get(path, params={"format": "file", "state": "open", **params}, headers=AUTH)
    assert answer.status_code == 200, answer.text
    return answer.content


def amend(client: TestClient, import_id: str, body: bytes) -> dict[str, Any]:
    answer = client.post(f"/v1/imports/{import_id}/errors/amend", content=body, headers=AUTH)
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    return found


def stored(platform: JudgedPlatform, import_id: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in ("name", "amount", "note")) for row in platform.accepted[import_id]]


HARD = 'name,amount,note\n"a, ""b""\nc",BAD,"x\r\ny"\nok,1,\n"  ",BAD,plain\nlast,BAD,"é;|"\n'
MENDED = [('a, "b"\nc', 7, "x\r\ny"), ("  ", 7, "plain"), ("last", 7, "é;|")]


@pytest.mark.parametrize(
    ("dialect", "encoding"),
    [
        ({}, "utf-8"),
        ({"delimiter": ";", "quote": "'"}, "utf-8"),
        ({"delimiter": "\t"}, "latin-1"),
        ({"delimiter": ";"}, "windows-1252"),
        ({"delimiter": "|"}, "utf-16"),
        ({}, "utf-16-be"),
    ],
)
@pytest.mark.parametrize("table", ["headed", "bare"])
def test_the_file_comes_back_as_it_was_written(
    platform: JudgedPlatform, client: TestClient, table: str, dialect: dict[str, str], encoding: str
) -> None:
    delimiter, quote = dialect.get("delimiter", ","), dialect.get("quote", '"')
    text = HARD.replace('"', "\0").replace(",", "\1")
    # Commas inside cells stay commas.
    text = text.replace("a\1 ", "a, ").replace("\1", delimiter).replace("\0", quote)
    head, _, rest = text.partition("\n")
    body = text if table == "headed" else rest
    origin = send(client, table, body.encode(encoding), encoding=encoding, **dialect)
    written = as_file(client, origin)
    plain = written.decode(encoding)
    assert plain.startswith(f"_row{delimiter}{head}\n")
    assert f"\n1{delimiter}{quote}a, {quote * 2}b{quote * 2}\nc{quote}{delimiter}BAD" in plain, "the row as it came"
    told = amend(client, origin, plain.replace("BAD", "7").encode(encoding))
    assert (told["closed"], told["open"]) == (3, 0)
    expected = [(a.replace('"', quote), b, c) for a, b, c in MENDED]
    assert stored(platform, told["id"]) == expected


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_are_kept(platform: JudgedPlatform, client: TestClient, end: str) -> None:
    body = end.join(["name,amount,note", "a,BAD,", "b,1,", "c,BAD,n"]) + end
    origin = send(client, "headed", body.encode())
    assert as_file(client, origin).decode() == end.join(["_row,name,amount,note", "1,a,BAD,", "3,c,BAD,n"]) + end


def test_only_open_rows_are_written_and_some_may_be_left_out(platform: JudgedPlatform, client: TestClient) -> None:
    origin = send(client, "headed", b"name,amount,note\na,x,\nb,x,\nc,x,\n")
    first, second, _third = as_file(client, origin).splitlines(keepends=True)[1:]
    told = amend(client, origin, b"_row,name,amount,note\n" + second.replace(b"x", b"2"))
    assert (told["closed"], told["open"]) == (1, 2)
    assert as_file(client, origin) == b"_row,name,amount,note\n" + first + _third
    assert as_file(client, origin, state="amended") == b"_row,name,amount,note\n" + second


def test_a_row_of_one_empty_cell_is_not_lost(platform: JudgedPlatform, client: TestClient) -> None:
    origin = send(client, "one", b"amount\nx\ny\n")
    told = amend(client, origin, b"_row,amount\n1,\n2,5\n")
    assert told["closed"] == 2
    after = client.get(f"/v1/imports/{told['id']}", headers=AUTH).json()["rows"]
    assert (after["read"], after["accepted"], after["rejected"]) == (2, 1, 1)


def test_too_many_cells_can_be_mended(platform: JudgedPlatform, client: TestClient) -> None:
    origin = send(client, "bare", b"a,1,n,extra,more\nb,2\nc,3,n\n")
    written = as_file(client, origin)
    assert written == b"_row,name,amount,note\n1,a,1,n,extra,more\n2,b,2\n"
    told = amend(client, origin, written.replace(b",extra,more", b"").replace(b"b,2", b"b,2,m"))
    assert stored(platform, told["id"]) == [("a", 1, "n"), ("b", 2, "m")]


def test_rows_whose_bytes_were_not_kept_are_left_out(client: TestClient) -> None:
    origin = send(client, "headed", b'name,amount,note\na,x,\nb,1,"never closed\nc,2,\n')
    assert as_file(client, origin) == b"_row,name,amount,note\n1,a,x,\n"


def test_json_lines_come_back_as_json_lines(platform: JudgedPlatform, client: TestClient) -> None:
    body = b'{"name": "a", "amount": "x"}\n{}\nnonsense\n {"name": "b", "amount": 1.5}\n{"name": "c", "amount": 1}\n'
    origin = send(client, "headed", body, format="jsonl")
    lines = as_file(client, origin).splitlines()
    assert lines == [
        b'{"_row":1,"name": "a", "amount": "x"}', b'{"_row":2}', b'{"_row":3,"_raw":"nonsense"}',
        b'{"_row":4,"name": "b", "amount": 1.5}',
    ]  # fmt: skip
    told = amend(client, origin, lines[0].replace(b'"x"', b"10") + b"\n" + lines[3].replace(b"1.5", b"15"))
    assert (told["closed"], told["open"]) == (2, 2)
    assert stored(platform, told["id"]) == [("a", 10, None), ("b", 15, None)]


def test_rows_of_avro_files_are_written_as_json_lines(
    platform: JudgedPlatform, client: TestClient, tmp_path: Path
) -> None:
    fields = [{"name": "name", "type": "string"}, {"name": "amount", "type": ["null", "long"]}]
    with (tmp_path / "a.avro").open("wb") as file:
        schema = {"type": "record", "name": "r", "fields": fields}
        fastavro.writer(file, schema, [{"name": "a", "amount": None}, {"name": "b", "amount": None}])
    origin = send(client, "headed", (tmp_path / "a.avro").read_bytes(), format="avro")
    first = json.loads(as_file(client, origin).splitlines()[0])
    assert first == {"_row": 1, "name": "a", "amount": None}
    told = amend(client, origin, json.dumps({**first, "amount": 3}).encode())
    assert (told["closed"], told["open"]) == (1, 1)


def test_an_unfinished_upload_says_that_it_cannot_be_written(platform: JudgedPlatform, client: TestClient) -> None:
    place = "/v1/tenants/acme/tables/headed/uploads"
    begun = client.post(place, headers={**AUTH, "Tus-Resumable": "1.0.0", "Upload-Length": "9"}).headers["location"]
    answer = client.get(f"{begun.replace('uploads', 'imports')}/errors/export", params={"format": "file"}, headers=AUTH)
    assert (answer.status_code, answer.json()["code"]) == (409, "unfinished")


# The commands.


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallServer]:
    with served_app(tmp_path_factory.mktemp("served"), kind=JudgedPlatform) as running:
        assert isinstance(running.platform, JudgedPlatform)
        running.platform.declare(record("notes", *FIELDS, key=("name",), csv={"header": True, "delimiter": ";"}))
        yield running


def test_the_commands_mend_one_row_of_28(server: SmallServer, tmp_path: Path) -> None:
    home, bad = server.platform.home.root, tmp_path / "bad.csv"
    bad.write_text("name;amount;note\nfine;1;\n" + "".join(f"n{number};x;\n" for number in range(28)))
    sent = command(home, "import", "acme/notes", str(bad), "--json")
    assert sent.returncode == 0, sent.stderr
    origin = json.loads(sent.stdout)["id"]
    mended = tmp_path / "mended.csv"
    done = command(home, "errors", origin, "--as-file", str(mended))
    assert done.returncode == 0, done.stderr
    head, first, *_ = mended.read_text().splitlines()
    assert (head, first) == ("_row;name;amount;note", "2;n0;x;")
    mended.write_text(f"{head}\n{first.replace('x', '5')}\n")
    done = command(home, "amend", origin, str(mended))
    assert done.returncode == 0, done.stderr
    assert "1 accepted, 0 rejected; 1 of 28 closed, 27 open" in done.stdout
    assert "27 open, 1 amended, 0 replayed, 0 discarded" in command(home, "status", origin).stdout
    listed = command(home, "errors", origin)
    assert "row 2, line 3 (amended): n0;x;" in listed.stdout
    assert "27 open, 1 amended" in listed.stderr
    assert command(home, "errors", origin, "--state", "amended").stdout.count("row ") == 1
    assert "28" in (reasons := command(home, "reasons", origin).stdout)
    assert "27" in reasons
    again = command(home, "amend", origin, str(mended))
    assert (again.returncode, "claimed" in again.stderr or "before" in again.stderr) == (1, True), again.stderr
    stranger = tmp_path / "stranger.csv"
    stranger.write_text("name;amount;note\nnobody;1;\nn1;2;\n")
    refused = command(home, "amend", origin, str(stranger))
    assert refused.returncode == 1
    assert "Row 1 of the file replaces no open rejected row" in refused.stderr
    added = command(home, "amend", origin, str(stranger), "--add", "--json")
    told = json.loads(added.stdout)
    assert (added.returncode, told["closed"], told["open"], told["added"]) == (0, 1, 26, 1)
