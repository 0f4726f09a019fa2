"""Amending closes exactly the rejected rows that corrected rows replace: by number, by key, or not at all."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from millrace.api.repair.amendments import Amendments
from millrace.api.repair.row_matching import _keys_of, keys_of_rejected
from millrace.api.uploads.session import Session
from millrace.declare.table import parse_table
from millrace.model.imports import COMPLETED, Import
from millrace.model.names import new_id
from millrace.model.ops.imports import BeginImport, ExpireImport
from millrace.model.table import define
from millrace.validate.keyed import KeyedRows
from tests.support.judged_app import JudgedPlatform, lines
from tests.support.platform import record
from tests.support.whole_app import TOKEN, whole_app

AUTH = {"Authorization": f"Bearer {TOKEN}"}
CSV = {"header": True}
NOTES = record("notes", ("id", "long"), ("amount", "long"), ("note", ["null", "string"]), key=("id",), csv=CSV)
PLAIN = record("plain", ("id", "long"), ("amount", "long"), csv=CSV)
PAIRS = record("pairs", ("a", "string"), ("b", "int"), ("v", "long"), key=("a", "b"), csv=CSV)
DATE = {"type": "int", "logicalType": "date"}
BAD_ROWS = 28


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[JudgedPlatform, TestClient]]:
    with whole_app(tmp_path_factory.mktemp("amend"), JudgedPlatform) as (platform, client):
        assert isinstance(platform, JudgedPlatform)
        platform.declare(NOTES, PLAIN, PAIRS)
        yield platform, client


@pytest.fixture(scope="module")
def platform(scene: tuple[JudgedPlatform, TestClient]) -> JudgedPlatform:
    return scene[0]


@pytest.fixture(scope="module")
def client(scene: tuple[JudgedPlatform, TestClient]) -> TestClient:
    return scene[1]


def send(client: TestClient, body: str, table: str = "notes", **params: Any) -> str:
    path = f"/v1/tenants/acme/tables/{table}/imports"
    answer = client.post(path, content=body.encode(), params={"file_name": "a.csv", **params}, headers=AUTH)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


@pytest.fixture
def origin(client: TestClient) -> str:
    """Rows 3 to 30 are rejected: their amounts are no numbers."""
    bad = (f"{number},x{number},n" for number in range(3, BAD_ROWS + 3))
    return send(client, lines(["id,amount,note", "1,1,n", "2,2,n", *bad]))


def amend(client: TestClient, origin: str, body: str | bytes, key: str | None = None, **params: Any) -> Response:
    headers = AUTH if key is None else {**AUTH, "Idempotency-Key": key}
    content = body if isinstance(body, bytes) else body.encode()
    return client.post(f"/v1/imports/{origin}/errors/amend", content=content, params=params, headers=headers)


def show(client: TestClient, import_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/v1/imports/{import_id}", headers=AUTH).json()
    return found


def rows_in(client: TestClient, import_id: str, state: str | None) -> list[int]:
    params = {"limit": "1000"} if state is None else {"limit": "1000", "state": state}
    answer = client.get(f"/v1/imports/{import_id}/errors", params=params, headers=AUTH).json()
    return [row["row"] for row in answer["items"]]


def code(answer: Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_one_corrected_row_closes_one_row(platform: JudgedPlatform, client: TestClient, origin: str) -> None:
    answer = amend(client, origin, "id,amount,note\n7,70,mended\n")
    told = answer.json()
    assert answer.status_code == 202, told
    assert (told["closed"], told["of"], told["open"], told["added"]) == (1, BAD_ROWS, BAD_ROWS - 1, 0)
    assert platform.accepted[told["id"]][0]["amount"] == 70
    assert show(client, origin)["rejected_rows"] == {"open": 27, "amended": 1, "replayed": 0, "discarded": 0}
    assert rows_in(client, origin, "amended") == [7]
    assert len(rows_in(client, origin, "open")) == BAD_ROWS - 1
    assert len(rows_in(client, origin, None)) == BAD_ROWS
    assert client.get(f"/v1/imports/{origin}/errors/reasons", headers=AUTH).json()["items"][0] | {"example": ""} == {
        "column": "amount", "rule": "type", "rows": BAD_ROWS, "open": BAD_ROWS - 1, "example": "",
    }  # fmt: skip


def test_rows_are_named_by_number_first(platform: JudgedPlatform, client: TestClient, origin: str) -> None:
    """The key itself was wrong: only the number says which row is meant."""
    answer = amend(client, origin, "_row,id,amount,note\n5,500,1,a\n9,900,2,b\n")
    assert answer.json()["closed"] == 2, answer.text
    assert [row["id"] for row in platform.accepted[answer.json()["id"]]] == [500, 900]
    assert rows_in(client, origin, "amended") == [5, 9]
    last = amend(client, origin, "id,amount,note,_row\n6,1,a,6\n")
    assert last.json()["closed"] == 1, last.text
    assert code(amend(client, origin, "id,_row,amount,note\n8,8,1,a\n")) == (422, "invalid")


def test_rows_that_match_nothing_are_refused_by_name(client: TestClient, origin: str) -> None:
    stranger = amend(client, origin, "id,amount,note\n3,1,a\n999,1,b\n")
    assert code(stranger) == (422, "no_match")
    assert "Row 2 of the file" in stranger.json()["detail"]
    assert "--add" in stranger.json()["remedy"]
    assert "Row 1 of" in amend(client, origin, "_row,id,amount,note\n1,1,1,a\n").json()["detail"], "it was accepted"
    assert code(amend(client, origin, "_row,id,amount,note\n3,3,1,a\n3,3,2,a\n")) == (422, "row_twice")
    assert code(amend(client, origin, "_row,id,amount,note\nx,3,1,a\n")) == (422, "bad_row_number")
    assert code(amend(client, origin, "id,amount,note\n999,1,b\n", add="true")) == (422, "no_match")
    assert code(amend(client, origin, "id,amount,note\n")) == (422, "no_rows")
    assert rows_in(client, origin, "amended") == [], "nothing of this was claimed"


def test_add_imports_the_others_as_well(platform: JudgedPlatform, client: TestClient, origin: str) -> None:
    told = amend(client, origin, "id,amount,note\n3,1,a\n999,1,b\n", add="true").json()
    assert (told["closed"], told["added"]) == (1, 1)
    assert [row["id"] for row in platform.accepted[told["id"]]] == [3, 999]


def test_a_row_is_closed_once(client: TestClient, origin: str) -> None:
    assert amend(client, origin, "id,amount,note\n3,1,a\n").status_code == 202
    assert code(amend(client, origin, "id,amount,note\n3,2,a\n")) == (422, "no_match")
    again = amend(client, origin, "_row,id,amount,note\n3,3,2,a\n")
    assert code(again) == (409, "claimed")
    assert "Row 3 of" in again.json()["detail"]


def test_rows_that_are_rejected_again_belong_to_the_amendment(client: TestClient, origin: str) -> None:
    told = amend(client, origin, "_row,id,amount,note\n3,3,1,a\n4,4,still,a\n").json()
    assert show(client, told["id"])["rejected_rows"]["open"] == 1
    assert show(client, origin)["rejected_rows"]["amended"] == 2
    [row] = client.get(f"/v1/imports/{told['id']}/errors", headers=AUTH).json()["items"]
    assert (row["raw"], row["state"]) == ("4,still,a", "open")
    mended = amend(client, told["id"], "id,amount,note\n4,44,a\n")
    assert mended.json()["closed"] == 1, mended.text


def test_an_amendment_that_brings_nothing_leaves_its_rows_open(client: TestClient, origin: str) -> None:
    told = amend(client, origin, "_row,id,amount,note\n3,3,still,a\n").json()
    assert show(client, told["id"])["state"] == "failed"
    assert show(client, origin)["rejected_rows"] == {"open": 28, "amended": 0, "replayed": 0, "discarded": 0}


def test_several_rejected_rows_with_one_key_are_replaced_together_or_by_number(client: TestClient) -> None:
    origin = send(client, "id,amount,note\n1,x,a\n1,y,b\n2,z,c\n")
    doubtful = amend(client, origin, "id,amount,note\n1,5,a\n")
    assert code(doubtful) == (409, "ambiguous_key")
    assert "Rows 1, 2 of" in doubtful.json()["detail"]
    assert amend(client, origin, "_row,id,amount,note\n2,1,5,b\n").json()["closed"] == 1
    assert amend(client, origin, "id,amount,note\n1,5,a\n").json()["closed"] == 1, "one is left with this key"
    both = send(client, "id,amount,note\n1,x,a\n1,y,b\n")
    assert amend(client, both, "id,amount,note\n1,5,a\n1,6,a\n").json()["closed"] == 2
    more = send(client, "id,amount,note\n1,x,a\n")
    assert code(amend(client, more, "id,amount,note\n1,5,a\n1,6,a\n")) == (422, "no_match")
    told = amend(client, more, "id,amount,note\n1,5,a\n1,6,a\n", add="true").json()
    assert (told["closed"], told["added"]) == (1, 1)


def test_a_key_of_several_columns_is_compared_by_value(client: TestClient) -> None:
    origin = send(client, 'a,b,v\n"x,""y",07,?\nq,8,?\n', "pairs")
    told = amend(client, origin, 'b,a,v\n7,"x,""y",1\n').json()
    assert (told["closed"], told["open"]) == (1, 1), told


def test_without_a_primary_key_rows_are_named_by_number(platform: JudgedPlatform, client: TestClient) -> None:
    origin = send(client, "id,amount\n1,x\n1,x\n1,x\n", "plain")
    assert code(amend(client, origin, "id,amount\n1,1\n")) == (422, "no_match")
    told = amend(client, origin, "_row,id,amount\n2,1,20\n").json()
    assert (told["closed"], told["open"]) == (1, 2)
    assert rows_in(client, origin, "open") == [1, 3]
    stored = platform.accepted[told["id"]]
    assert [(row["id"], row["amount"]) for row in stored] == [(1, 20)], "the number is not stored"


def test_json_lines_name_rows_anywhere_in_the_object(platform: JudgedPlatform, client: TestClient, origin: str) -> None:
    body = '{"_row": 3, "id": 3, "amount": 1}\n{"id": 4, "amount": 2, "_row": 4}\n{"_row":5,"id":5,"amount":3}\n'
    told = amend(client, origin, body).json()
    assert told["closed"] == 3, told
    assert [row["amount"] for row in platform.accepted[told["id"]]] == [1, 2, 3]
    unnumbered = amend(client, origin, '{"_row":6,"id":6,"amount":1}\n{"id":7,"amount":1}\n')
    assert "Row 2 of the file replaces no open" in unnumbered.json()["detail"]


def test_a_rule_narrows_what_may_be_replaced(client: TestClient) -> None:
    origin = send(client, "id,amount,note\n1,x,a\n,2,b\n")
    assert code(amend(client, origin, "id,amount,note\n1,1,a\n", rule="primary_key")) == (422, "no_match")
    assert amend(client, origin, "id,amount,note\n1,1,a\n", rule="type").json()["closed"] == 1


def test_the_same_amendment_with_its_key_is_the_same_import(client: TestClient, origin: str) -> None:
    body = "_row,id,amount,note\n3,3,1,a\n"
    first, again = amend(client, origin, body, "mend"), amend(client, origin, body, "mend")
    assert again.status_code == 202, again.text
    assert again.json() | {"rows_per_second": 0} == first.json() | {"rows_per_second": 0, **_ended(again.json())}
    assert code(amend(client, origin, "_row,id,amount,note\n4,4,1,a\n", "mend")) == (409, "other_content")


def _ended(document: dict[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in ("eta_seconds", "lag")}


def test_an_amendment_that_comes_again_while_the_first_begins_is_the_same_import(
    client: TestClient, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first begins behind the second one's look for the key."""
    body, looks = "_row,id,amount,note\n5,5,50,n\n", list[bool]()
    is_known = Amendments._is_known

    def look(self: Amendments, tenant: str, key: str) -> bool:
        looks.append(is_known(self, tenant, key))
        return len(looks) > 1 and looks[-1]

    first = amend(client, origin, body, key="twice at once").json()
    monkeypatch.setattr(Amendments, "_is_known", look)
    again = amend(client, origin, body, key="twice at once")
    assert again.status_code == 202, again.text
    assert (again.json()["id"], looks) == (first["id"], [True, True])
    assert code(amend(client, origin, body, key="another")) == (409, "claimed")


def test_of_many_rejected_rows_only_those_with_a_wanted_key_are_kept() -> None:
    written = {"encoding": "jsonl"}
    imp = Import("imp_1", "acme", "notes", "f", COMPLETED, 1, 1, (), 1, options={"written": written})
    definition = define("acme", parse_table(NOTES), 1)
    numbers = range(1, 1001)
    raw = pa.array([b'{"id": %d, "amount": "x"}' % number for number in numbers], pa.binary())
    batch = pa.record_batch({"row": pa.array(numbers, pa.int64()), "raw": raw})
    every = next(_keys_of(batch, imp, definition))
    assert len(every.rows) == 1000
    wanted = KeyedRows(every.rows[6:8], every.first[6:8], every.second[6:8])
    assert keys_of_rejected([batch] * 3, imp, definition, wanted).rows.tolist() == [7, 8] * 3


def test_of_two_amendments_of_one_row_one_begins(
    platform: JudgedPlatform, client: TestClient, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found the row open; the log lets one of them claim it."""
    begin = platform.sessions.begin

    async def after_another(*given: Any) -> Any:
        monkeypatch.setattr(platform.sessions, "begin", begin)
        op = BeginImport(given[0], given[1], id=new_id("imp"), **{k: v for k, v in given[5].items() if v is not None})
        assert platform.apply(op).refusal is None
        return await begin(*given)

    monkeypatch.setattr(platform.sessions, "begin", after_another)
    assert code(amend(client, origin, "id,amount,note\n3,1,a\n")) == (409, "claimed")
    assert rows_in(client, origin, "amended") == [3]


def test_an_upload_that_dies_between_claim_and_end_gives_its_rows_back(
    platform: JudgedPlatform, client: TestClient, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(self: Session, pieces: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Session, "take_whole", dies)
        assert amend(client, origin, "id,amount,note\n3,1,a\n").status_code == 500
    assert rows_in(client, origin, "amended") == [3], "until its lease is over"
    stuck = client.get("/v1/imports", params={"kind": "amend", "state": "admitted"}, headers=AUTH).json()["items"][0]
    platform.apply(ExpireImport("acme", stuck["id"], idle_seconds=60))
    platform.settle(stuck["id"])
    assert rows_in(client, origin, "open") == list(range(3, BAD_ROWS + 3))
    assert amend(client, origin, "id,amount,note\n3,1,a\n").json()["closed"] == 1


def test_a_delete_that_is_amended_still_deletes(platform: JudgedPlatform, client: TestClient) -> None:
    origin = send(client, "id\nx\n2\n", kind="delete")
    told = amend(client, origin, "_row,id\n1,77\n").json()
    assert told["closed"] == 1, told
    assert [(row["id"], row["_deleted"]) for row in platform.accepted[told["id"]]] == [(77, True)]


def test_too_large_a_file_is_refused(client: TestClient, origin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millrace.api.repair.amendments.MOST_CORRECTED_BYTES", 10)
    assert code(amend(client, origin, "id,amount,note\n3,1,a\n")) == (413, "too_large")


# Single rows.


def amend_rows(client: TestClient, origin: str, *rows: dict[str, Any]) -> Response:
    return client.post(f"/v1/imports/{origin}/errors/amend-rows", json={"rows": list(rows)}, headers=AUTH)


def test_single_rows_are_repaired_and_keep_their_other_values(platform: JudgedPlatform, client: TestClient) -> None:
    bad = (f'{number},x,"a ""b"", {number}"' for number in range(1, 5001))
    origin = send(client, lines(["id,amount,note", *bad]))
    told = amend_rows(
        client,
        origin,
        {"row": 17, "values": {"amount": 170}},
        {"row": 4999, "values": {"amount": 1, "note": None}},
        {"row": 300, "values": {"amount": 2, "id": 9_000_000}},
    ).json()
    assert (told["closed"], told["open"]) == (3, 4997), told
    stored = [(row["id"], row["amount"], row["note"]) for row in platform.accepted[told["id"]]]
    assert stored == [(17, 170, 'a "b", 17'), (4999, 1, None), (9_000_000, 2, 'a "b", 300')]
    assert show(client, origin)["rejected_rows"]["open"] == 4997


def test_a_cell_that_nobody_mends_is_rejected_again(client: TestClient) -> None:
    origin = send(client, "id,amount,note\n1,x,a\n2,y,b\n")
    told = amend_rows(client, origin, {"row": 1, "values": {"note": "c"}}, {"row": 2, "values": {"amount": 1}}).json()
    [again] = client.get(f"/v1/imports/{told['id']}/errors", headers=AUTH).json()["items"]
    assert json.loads(again["raw"]) == {"id": 1, "amount": "x", "note": "c"}


def test_single_rows_that_do_not_fit_are_refused(client: TestClient, origin: str) -> None:
    assert code(amend_rows(client, origin, {"row": 1, "values": {"amount": 1}})) == (422, "no_match")
    assert code(amend_rows(client, origin, {"row": 3, "values": {"amont": 1}})) == (422, "unknown_field")
    twice = amend_rows(client, origin, {"row": 3, "values": {"amount": 1}}, {"row": 3, "values": {"amount": 2}})
    assert code(twice) == (422, "row_twice")
    assert code(amend_rows(client, origin)) == (422, "invalid")


def amend_raw_rows(client: TestClient, origin: str, row: str, value: str, how: str = "amend-rows") -> Response:
    content = f'{{"rows": [{{"row": {row}, "values": {{"amount": {value}}}}}]}}' if how == "amend-rows" else row
    headers = {**AUTH, "Content-Type": "application/json"}
    return client.post(f"/v1/imports/{origin}/errors/{how}", content=content, headers=headers)


def test_given_numbers_keep_all_their_digits(platform: JudgedPlatform, client: TestClient) -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    platform.declare(record("money", ("id", "long"), ("amount", money), key=("id",), csv=CSV))
    origin = send(client, "id,amount\n1,x\n2,y\n", "money")
    told = amend_raw_rows(client, origin, "1", "123456789012345678901234.56").json()
    assert str(platform.accepted[told["id"]][0]["amount"]) == "123456789012345678901234.56"
    told = amend_raw_rows(client, origin, "2", "123456789012345678901234567890").json()
    assert str(platform.accepted[told["id"]][0]["amount"]) == "123456789012345678901234567890.00"


def test_hostile_values_and_numbers_are_refused(client: TestClient, origin: str) -> None:
    for value in ("[" * 300 + "]" * 300, '"\\ud800"'):
        assert code(amend_raw_rows(client, origin, "3", value)) == (422, "bad_value")
    for number in ("-1", str(2**63), str(2**64), str(10**30)):
        assert code(amend_raw_rows(client, origin, number, "1")) == (422, "invalid")
        for how in ("replay", "discard"):
            assert code(amend_raw_rows(client, origin, f'{{"rows": [{number}]}}', "", how)) == (422, "invalid")
    deep = f'{{"id": 3, "note": {"[" * 900}{"]" * 900}, "_row": 3}}\n'
    assert code(amend(client, origin, deep)) == (422, "invalid")


TYPES: list[tuple[str, Any, str]] = [
    ("d", {"type": "int", "logicalType": "date"}, "2026-02-03"),
    ("t", {"type": "long", "logicalType": "timestamp-millis"}, "2026-02-03T04:05:06.789Z"),
    ("u", {"type": "long", "logicalType": "timestamp-micros"}, "2026-02-03T04:05:06.789012Z"),
    ("m", {"type": "int", "logicalType": "time-millis"}, "04:05:06.789"),
    ("c", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}, "123456789012.3456"),
    ("f", "double", "0.1"),
    ("b", "boolean", "true"),
    ("s", "string", '"text, ""quoted"""'),
    ("l", {"type": "array", "items": "long"}, '"[1, 2]"'),
]


@pytest.mark.parametrize("file_type", ["csv", "jsonl"])
def test_the_values_that_are_kept_are_those_the_table_reads(
    platform: JudgedPlatform, client: TestClient, file_type: str
) -> None:
    name = f"typed_{file_type}"
    fields: list[tuple[str, Any]] = [("id", "long"), ("n", "long"), *((name, kind) for name, kind, _ in TYPES)]
    platform.declare(record(name, *fields, key=("id",), csv=CSV))
    cells = ",".join(text for _, _, text in TYPES)
    good = send(client, lines(["id,n," + ",".join(column for column, _, _ in TYPES), f"1,1,{cells}"]), name)
    wanted = platform.accepted[good][0]
    if file_type == "csv":
        origin = send(client, lines(["id,n," + ",".join(column for column, _, _ in TYPES), f"1,x,{cells}"]), name)
    else:
        whole = {"d": "2026-02-03", "t": "2026-02-03T04:05:06.789Z", "u": "2026-02-03T04:05:06.789012Z"}
        whole |= {"m": "04:05:06.789", "c": "123456789012.3456", "s": 'text, "quoted"'}
        text = json.dumps({"id": 1, "n": "x", **whole, "b": True, "l": [1, 2]})[:-1] + ', "f": 0.1}\n'
        origin = send(client, text, name, format="jsonl")
    told = amend_rows(client, origin, {"row": 1, "values": {"n": 1}}).json()
    [stored] = platform.accepted[told["id"]]
    own = ("_version", "_import", "_row")
    assert {k: v for k, v in stored.items() if k not in own} == {k: v for k, v in wanted.items() if k not in own}


def test_values_that_are_written_in_another_way_keep_their_meaning(
    platform: JudgedPlatform, client: TestClient
) -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
    document = record("german", ("id", "long"), ("n", "long"), ("price", money), ("day", DATE), key=("id",), csv=CSV)
    fields = document["schema"]["fields"]
    fields[1] |= {"type": ["null", "long"], "null_texts": ["k.A."]}
    fields[2] |= {"decimal_separator": ",", "thousands_separator": ".", "header": "Preis in EUR"}
    fields[3] |= {"format": "%d.%m.%Y"}
    platform.declare(document)
    good = send(client, 'id,n,Preis in EUR,day\n1,k.A.,"1.234,56",03.02.2026\n', "german")
    origin = send(client, 'id,n,Preis in EUR,day\nx,k.A.,"1.234,56",03.02.2026\n', "german")
    told = amend_rows(client, origin, {"row": 1, "values": {"id": 1}}).json()
    [stored], [wanted] = platform.accepted[told["id"]], platform.accepted[good]
    assert [stored[name] for name in ("id", "n", "price", "day")] == [wanted[n] for n in ("id", "n", "price", "day")]
    again = send(client, 'id,n,Preis in EUR,day\nx,k.A.,"1.234,56",03.02.2026\n', "german")
    exported = client.get(f"/v1/imports/{again}/errors/export", params={"format": "file"}, headers=AUTH).content
    told = amend(client, again, exported.replace(b"1,x,", b"1,1,")).json()
    [stored] = platform.accepted[told["id"]]
    assert [stored[name] for name in ("id", "n", "price", "day")] == [wanted[n] for n in ("id", "n", "price", "day")]
