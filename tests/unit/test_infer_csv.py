"""How a CSV file is written, seen from its bytes: dialect, header, null text, encoding, key; and what cannot be mended."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from millrace.infer.csv_file import draft_csv
from millrace.infer.proposing import Proposal, propose
from millrace.infer.sampling import FileSample, sample_of
from millrace.model.errors import Invalid


@pytest.fixture
def given(tmp_path: Path) -> Any:
    def infer(body: bytes | str, name: str = "orders.csv") -> Proposal:
        path = tmp_path / name
        path.write_bytes(body if isinstance(body, bytes) else body.encode())
        return propose(path)

    return infer


def dialect(proposal: Proposal) -> dict[str, Any]:
    found: dict[str, Any] = proposal.document["csv"]
    return found


def types(proposal: Proposal) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in proposal.document["schema"]["fields"]}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_the_one_that_rows_agree_on(given: Any, delimiter: str) -> None:
    rows = [["id", "text", "amount"], ["1", "a, b; c", "2.5"], ["2", "d|e,f", "3"], ["3", "none", "4"]]
    text = "".join(
        delimiter.join(f'"{cell}"' if set(cell) & set(",;|") else cell for cell in row) + "\n" for row in rows
    )
    proposal = given(text)
    assert dialect(proposal)["delimiter"] == delimiter
    assert types(proposal) == {"id": "int", "text": "string", "amount": "double"}


def test_commas_in_the_text_of_one_column_do_not_make_more(given: Any) -> None:
    proposal = given("note\nhello, world\nno comma\na;b|c\td\n")
    assert types(proposal) == {"note": "string"}
    assert proposal.checked.failed == 0


def test_apostrophes_around_every_cell_are_quotes(given: Any) -> None:
    proposal = given("'id','note'\n'1','a, b'\n'2','it''s'\n")
    assert dialect(proposal)["quote"] == "'"
    assert types(proposal) == {"id": "int", "note": "string"}


def test_quotes_that_are_text_do_not_swallow_rows(given: Any) -> None:
    proposal = given('id,size\n1,"5 inch\n2,6\n3,"7 inch\n4,8\n5,9\n')
    assert proposal.checked.rows == 5
    assert proposal.checked.failed == 0


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("id,name\n1,a\n2,b\n", True),
        ("1,a\n2,b\n", False),
        ("name,city\nAnn,Bonn\nBob,Kiel\n", True),
        ("Ann,Bonn\nBob,Kiel\nAnn,Ulm\n", False),
        ("id,name\n", True),
        ("2024,2025\n1,2\n", False),
        ("_row,_import\nx,1\n", False),
    ],
)
def test_a_first_row_that_names_columns_is_a_header(given: Any, text: str, header: bool) -> None:
    proposal = given(text)
    assert dialect(proposal)["header"] is header
    assert proposal.checked.failed == 0


def test_columns_that_cannot_be_named_are_left_out(given: Any) -> None:
    proposal = given("id,,_row,a,a,ID\n1,2,3,4,5,6\n")
    assert list(types(proposal)) == ["id"]
    assert set(proposal.checked.draft.left_out) == {"", "_row", "a", "ID"}
    assert proposal.document["unknown_fields"] == "ignore"


@pytest.mark.parametrize("word", ["NULL", "\\N", "NA", "n/a"])
def test_the_null_text_is_the_one_that_makes_numbers_of_most_columns(given: Any, word: str) -> None:
    proposal = given(f"id,a,b\n1,{word},2.5\n2,7,{word}\n3,8,1\n")
    assert dialect(proposal)["null_text"] == word
    assert types(proposal) == {"id": "int", "a": ["null", "int"], "b": ["null", "double"]}


def test_a_word_that_is_text_stays_text(given: Any) -> None:
    proposal = given("id,country\n1,NA\n2,DE\n")
    assert dialect(proposal)["null_text"] == ""
    assert types(proposal)["country"] == "string"


@pytest.mark.parametrize(
    ("encoding", "declared"),
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8"),
        ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
        ("latin-1", "latin-1"),
    ],
)
def test_the_encoding_is_seen_from_the_bytes(given: Any, encoding: str, declared: str) -> None:
    proposal = given("id,größe\n1,süß\n2,zäh\n".encode(encoding))
    assert dialect(proposal)["encoding"] == declared
    assert types(proposal) == {"id": "int", "groesse": "string"}
    assert proposal.document["schema"]["fields"][1]["header"] == "größe"
    assert proposal.checked.failed == 0


def test_signs_of_windows_are_not_control_characters(given: Any) -> None:
    """As Excel writes CSV on a German machine."""
    proposal = given("Kunde;Umsatz (€);Notiz\r\nMüller;1,50;„gut“ – sehr\r\nGroß;2,50;–\r\n".encode("windows-1252"))
    assert dialect(proposal)["encoding"] == "windows-1252"
    assert proposal.document["schema"]["fields"][1]["header"] == "Umsatz (€)"
    assert proposal.checked.failed == 0
    assert dialect(given(b"id,a\n1,\xfc\x80\x81\n"))["encoding"] == "latin-1"


def test_a_broken_letter_among_many_is_damage_and_no_other_encoding(given: Any) -> None:
    body = b"id,a,b\n" + "1,äöü,ß\n".encode() * 500 + b"2,x\xff,y\n"
    proposal = given(body)
    assert dialect(proposal)["encoding"] == "utf-8"
    assert types(proposal) == {"id": "int", "a": "string", "b": "string"}
    assert [(each.rule, each.examples[0].line) for each in proposal.checked.reasons] == [("utf8", 502)]


def test_a_column_with_many_broken_letters_is_bytes(given: Any) -> None:
    proposal = given(b"id,a,b\n" + "1,äöü,ß\n".encode() * 500 + b"2,x\xff,y\n" * 8)
    assert (types(proposal)["a"], types(proposal)["b"]) == ("bytes", "string")
    assert proposal.checked.failed == 0


def test_compression_is_seen_through(given: Any) -> None:
    proposal = given(gzip.compress(b"id\n1\n"), "x.csv.gz")
    assert (proposal.compression, proposal.document["table"]) == ("gzip", "x")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("name,id\na,1\nb,2\n", ["id"]),
        ("order_id,customer_id\n1,5\n2,5\n", ["order_id"]),
        ("name,size\na,1\nb,2\n", []),
        ("id,x\n1,1\n1,2\n", []),
        ("id,x\n1,1\n,2\n", []),
        (
            "device_id,at,v\n" + "".join(f"{n % 5},2024-01-{1 + n // 5:02d},{n % 3}\n" for n in range(100)),
            ["device_id", "at"],
        ),
        ("name,v\n" + "".join(f"n{n},{n % 3}\n" for n in range(200)), ["name"]),
        ("at,v\n" + "".join(f"2024-01-01 00:{n // 60:02d}:{n % 60:02d},{n % 3}\n" for n in range(200)), []),
    ],
)
def test_the_key_differs_in_every_row_and_looks_like_one(given: Any, text: str, key: list[str]) -> None:
    assert given(text).document["primary_key"] == key


def test_rows_that_no_declaration_mends_are_told(given: Any) -> None:
    proposal = given("id,name\n" + "1,a\n" * 50 + "1,a,b\n" + "2,b\n" * 50)
    (reason,) = proposal.checked.reasons
    assert (reason.rule, reason.rows, proposal.checked.failed) == ("columns", 1, 1)


def test_every_type_is_recognised(given: Any) -> None:
    rows = [
        f"{n},{3_000_000_000 + n},{'9' * 20}{n:03d},{n / 4},{n:03d},{n % 2 == 0},2024-01-{1 + n % 28:02d},01:02:03,"
        f"2024-01-01 00:{n % 60:02d}:00,00000000-0000-0000-0000-{n:012d},n{n}"
        for n in range(1, 50)
    ]
    names = "id,big,huge,part,code,flag,day,at,moment,mark,word"
    proposal = given("\n".join([names, *rows]))
    found = {name: kind if isinstance(kind, str) else kind["logicalType"] for name, kind in types(proposal).items()}
    assert found == {
        "id": "int", "big": "long", "huge": "decimal", "part": "double", "code": "string", "flag": "boolean",
        "day": "date", "at": "time-millis", "moment": "timestamp-micros", "mark": "uuid", "word": "string",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "says"),
    [(b"", "is empty"), (b"\n\n", "is empty"), (b'[{"a": 1}]', "JSON array"), (b"{}\n{}\n", "no column")],
)
def test_what_cannot_be_a_table_is_refused(given: Any, body: bytes, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        given(body)


def quoted_lines(rows: int) -> bytes:
    return b"id,note,n\n" + b"".join(b'%d,"line one\n%d,two, ""three""\n",%d\n' % (n, n, n % 7) for n in range(rows))


def test_pieces_from_the_middle_are_read_from_a_row_on(tmp_path: Path) -> None:
    """Also where most line ends lie inside quotes: only the first row and the last one of a piece are lost."""
    path = tmp_path / "quoted.csv"
    path.write_bytes(quoted_lines(20_000))
    sample = sample_of(path, head_bytes=50_000, piece_bytes=4_001, pieces=20)
    assert (len(sample.pieces), sample.is_whole) == (20, False)
    looked = draft_csv(sample, "quoted")
    found = [(column.name, column.avro, column.nullable) for column in looked.draft.columns]
    assert found == [("id", "int", False), ("note", "string", False), ("n", "int", False)]
    assert looked.draft.key == ("id",)
    assert looked.rows > 1500


def test_the_sample_reaches_the_end_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_bytes(b"id,v\n" + b"".join(b"%d,5\n" % n for n in range(100_000)) + b"100000,2.5\n100001,6\n")
    sample = sample_of(path, head_bytes=10_000, piece_bytes=2_000, pieces=5)
    assert draft_csv(sample, "long").draft.columns[1].avro == "double"
    assert len(sample.head) + sum(map(len, sample.pieces)) < 25_000


def test_a_compressed_file_is_sampled_over_its_whole_length(tmp_path: Path) -> None:
    path = tmp_path / "long.csv.gz"
    plain = b"".join(b"%07d\n" % n for n in range(200_000))
    path.write_bytes(gzip.compress(plain))
    sample = sample_of(path, head_bytes=8_000, piece_bytes=8_000, pieces=10)
    assert sample.head == plain[:8_000]
    assert 5 <= len(sample.pieces) <= 11
    starts = [plain.find(piece) for piece in sample.pieces]
    assert starts == sorted(starts)
    assert -1 not in starts
    assert plain.endswith(sample.pieces[-1])
    assert sample_of(path, head_bytes=2_000_000) == FileSample(plain)


def test_a_rare_cell_that_the_sample_missed_is_found_by_the_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rare.csv"
    rows = [b"%d,5\n" % n for n in range(100_000)]
    path.write_bytes(b"id,v\n" + b"".join([*rows[:-1000], b",6\n7,x\n", *rows[-1000:]]))
    small = sample_of(path, head_bytes=10_000, piece_bytes=1_000, pieces=3)
    assert draft_csv(small, "rare").draft.key == ("id",)
    assert draft_csv(small, "rare").draft.columns[1].avro == "int"
    monkeypatch.setattr("millrace.infer.proposing.sample_of", lambda path: small)
    proposal = propose(path)
    assert types(proposal) == {"id": ["null", "int"], "v": "int"}
    assert proposal.document["primary_key"] == []
    assert (proposal.checked.rows, proposal.checked.failed) == (100_002, 1)
    assert [(each.line, each.value) for each in proposal.checked.reasons[0].examples] == [(99_003, "x")]
    assert proposal.looked_at < 5_000


def test_a_column_that_the_sample_misjudged_is_widened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "late.csv"
    path.write_bytes(b"id,v\n" + b"1,5\n" * 20_000 + b"2,word\n" * 20_000)
    small = sample_of(path, head_bytes=10_000, piece_bytes=1_000, pieces=3)
    monkeypatch.setattr("millrace.infer.proposing.sample_of", lambda path: FileSample(small.head))
    assert draft_csv(FileSample(small.head[:9_000]), "late").draft.columns[1].avro == "int"
    proposal = propose(path)
    assert types(proposal)["v"] == "string"
    assert proposal.checked.failed == 0
