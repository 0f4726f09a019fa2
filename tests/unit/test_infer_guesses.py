"""What a column's cells suggest about how they are written, and what a file's columns tell each other."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millrace.infer.described import attributes_of
from millrace.infer.guessing import guess_column
from millrace.infer.proposing import Proposal, propose
from millrace.infer.tolerance import tolerated
from millrace.model.column_names import plain_names


def guessed(*cells: str, nulls: int = 0) -> tuple[str, dict[str, Any]]:
    column = guess_column("c", pa.array(cells * 3, pa.string()), nulls).column
    return column.logical or column.kind, attributes_of(column)


@pytest.mark.parametrize(
    ("cells", "kind", "said"),
    [
        (("31.12.2024", "01.02.2024"), "date", {"format": "dd.MM.yyyy"}),
        (("1.2.2024", "31.12.2024"), "date", {"format": "d.M.yyyy"}),
        (("12/31/2024", "01/02/2024"), "date", {"format": "MM/dd/yyyy"}),
        (("31/12/2024", "01/02/2024"), "date", {"format": "dd/MM/yyyy"}),
        (("2024/12/31", "2024/01/02"), "date", {"format": "yyyy/MM/dd"}),
        (("99-12-31", "98-01-02"), "date", {"format": "yy-MM-dd"}),
        (("31-Dec-2024", "01-Feb-2024"), "date", {"format": "dd-MMM-yyyy"}),
        (("May 1, 2024", "June 12, 2024"), "date", {"format": "MMMM d, yyyy"}),
        (("May 1, 2024", "Jun 12, 2024"), "date", {"format": "MMM d, yyyy"}),
        (("2024-01-31T10:15", "2024-02-01T00:00"), "timestamp-micros", {"format": "yyyy-MM-dd'T'HH:mm"}),
        (("31.01.2024 10:15:00", "01.02.2024 9:05:00"), "timestamp-micros", {"format": "dd.MM.yyyy H:mm:ss"}),
        (("31.01.2024 10:15:00,250",), "timestamp-micros", {"format": "dd.MM.yyyy HH:mm:ss,SSS"}),
        (("1/31/2024 1:05 PM",), "timestamp-micros", {"format": "M/dd/yyyy h:mm a"}),
        (("9:05 AM", "11:30 PM"), "time-millis", {"format": "h:mm a"}),
        (("2024-01-31", "31.01.2024"), "date", {"format": ["yyyy-MM-dd", "dd.MM.yyyy"]}),
        (("31.01.2024", "31.01.2024 10:15"), "timestamp-micros", {"format": ["dd.MM.yyyy", "dd.MM.yyyy HH:mm"]}),
        (("2024-W05", "2024-W06"), "string", {}),
        (("31.02.2024", "30.02.2024"), "string", {}),
        (("1,5", "2,25"), "double", {"decimal_separator": ","}),
        (("1.234,5", "2,25"), "double", {"decimal_separator": ",", "thousands_separator": "."}),
        (("1,234.5", "2.25"), "double", {"thousands_separator": ","}),
        (("1'234", "999"), "int", {"thousands_separator": "'"}),
        (("1 234 567", "999"), "int", {"thousands_separator": " "}),
        (("-1,5", "+2,5"), "string", {}),
        (("0049,5", "1,5"), "string", {}),
        (("192.168.100.200", "192.168.100.201"), "string", {}),
        (("5", "#N/A"), "int", {"null_texts": ["#N/A"]}),
        (("apple", "NA"), "string", {}),
        (("apple", "NULL"), "string", {"null_texts": ["NULL"]}),
        (("Ja", "nein", "JA"), "boolean", {"true_texts": ["Ja"], "false_texts": ["nein"]}),
        (("ja", "vielleicht"), "string", {}),
        (("ja", "ja"), "string", {}),
        ((" a", " b"), "string", {"trim": True}),
    ],
)
def test_how_cells_are_written(cells: tuple[str, ...], kind: str, said: dict[str, Any]) -> None:
    assert guessed(*cells) == (kind, said)


def test_a_cross_needs_empty_cells_to_be_a_boolean() -> None:
    assert guessed("X", nulls=4) == ("boolean", {"true_texts": ["X"]})
    assert guessed("X") == ("string", {})


@pytest.mark.parametrize(("cells", "bad"), [(9, 0), (10, 1), (49, 4), (400, 5), (1000, 10)])
def test_a_few_cells_may_be_bad(cells: int, bad: int) -> None:
    assert tolerated(cells) == bad
    texts = ["31.12.2024"] * (cells - bad) + ["soon"] * bad
    guess = guess_column("c", pa.array(texts), 0)
    assert (guess.column.logical, guess.misfits) == ("date", bad)
    one_more = [*texts[1:], "soon"]
    assert guess_column("c", pa.array(one_more), 0).is_text


def test_titles_become_plain_names_that_differ() -> None:
    titles = ["ONUID", "Größe (cm)", "grösse cm", "Année", "2024", "№", "order id", "order_id", "_row", ""]
    assert plain_names(titles) == [
        "ONUID", "groesse_cm", "groesse_cm_2", "annee", "_2024", "no", "order_id_2", "order_id", "_row", "",
    ]  # fmt: skip


def inferred(tmp_path: Path, text: str) -> Proposal:
    path = tmp_path / "given.csv"
    path.write_text(text)
    return propose(path)


def said(proposal: Proposal) -> dict[str, dict[str, Any]]:
    fields = proposal.document["schema"]["fields"]
    return {each["name"]: {word: each[word] for word in each if word not in ("name", "type")} for each in fields}


def test_columns_that_contradict_each_other_do_not_answer_for_others(tmp_path: Path) -> None:
    proposal = inferred(tmp_path, "a,b,c\n" + "31/01/2024,01/31/2024,01/02/2024\n" * 5)
    assert said(proposal)["c"] == {"format": "dd/MM/yyyy"}
    assert "by default" in " ".join(proposal.checked.draft.remarks)


def test_am_and_pm_put_the_month_first_by_default(tmp_path: Path) -> None:
    proposal = inferred(tmp_path, "a,b\n" + "01/02/2024 1:05 PM,x\n" * 5)
    assert said(proposal)["a"] == {"format": "MM/dd/yyyy h:mm a"}


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ('n,b\n"1,250",x\n"2,500",y\n', {"thousands_separator": ","}),
        ("n;b\n1,250;x\n2,500;y\n", {"decimal_separator": ","}),
        ("n;b\n1.250;0,5\n2.500;7,25\n", {"thousands_separator": "."}),
        ("n;b\n1.250;x\n2.500;y\n", {}),
    ],
)
def test_a_mark_before_three_digits_is_explained_by_the_file(tmp_path: Path, text: str, column: dict[str, str]) -> None:
    assert said(inferred(tmp_path, text))["n"] == column


def test_a_default_never_changes_how_another_column_is_read(tmp_path: Path) -> None:
    rows = "1,5;2,5;3.5;01.02.2024;03.04.2024;2024-01-01\n" * 4
    proposal = inferred(tmp_path, f"a;b;c;d;e;f\n{rows}")
    assert "written" not in proposal.document
    assert said(proposal)["a"] == {"decimal_separator": ","}
    assert proposal.checked.failed == 0


def test_thousands_are_no_default_where_they_are_decimals_elsewhere(tmp_path: Path) -> None:
    proposal = inferred(tmp_path, "a;b;c\n" + "1.234.567;2.345.678;3.5\n" * 4)
    assert "written" not in proposal.document
    assert said(proposal) == {"a": {"thousands_separator": "."}, "b": {"thousands_separator": "."}, "c": {}}
    assert proposal.checked.failed == 0


def test_headers_between_all_rows_do_not_count(tmp_path: Path) -> None:
    proposal = inferred(tmp_path, "id,placed\n" + "".join(f"{n},{n:02d}.12.2024\nid,placed\n" for n in range(1, 21)))
    assert [field["type"] for field in proposal.document["schema"]["fields"]] == [
        "int", {"type": "int", "logicalType": "date"},
    ]  # fmt: skip
    assert proposal.document["primary_key"] == ["id"]
    assert (proposal.checked.rows, proposal.checked.failed, proposal.checked.repeated_headers) == (20, 0, 20)


def test_equal_rows_of_text_are_no_repeated_header(tmp_path: Path) -> None:
    proposal = inferred(tmp_path, "Ann,Bonn\nBob,Kiel\nAnn,Bonn\n")
    assert proposal.document["csv"]["header"] is False
    assert proposal.checked.rows == 3


def test_one_long_line_of_text_is_no_title(tmp_path: Path) -> None:
    proposal = inferred(tmp_path, "name\nSmith, John\nDoe, Jane\nRoe, Rich\n")
    assert "skip_lines" not in proposal.document["csv"]
    assert list(said(proposal)) == ["name"]
