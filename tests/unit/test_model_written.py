"""How values are written, as a table declares it: what is taken, what is refused in words, and what a definition keeps."""

import json
from typing import Any

import pytest

from millrace.declare.table import parse_table
from millrace.model.change_words import settings_changed
from millrace.model.columns import Column
from millrace.model.declared_documents import table_document_of
from millrace.model.errors import Invalid
from millrace.model.evolution import check
from millrace.model.fields import assigned
from millrace.model.patterns import parse_pattern
from millrace.model.table import Definition, define
from millrace.model.table_warnings import table_warnings
from millrace.model.written import AS_USUAL, Writing

DATE = {"type": "int", "logicalType": "date"}
TIME = {"type": "int", "logicalType": "time-millis"}
TIMESTAMP = {"type": "long", "logicalType": "timestamp-micros"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}


def field(name: str, avro: Any, **words: Any) -> dict[str, Any]:
    return {"name": name, "type": avro, **words}


def document(*fields: dict[str, Any], **words: Any) -> dict[str, Any]:
    return {"schema": {"type": "record", "name": "t", "fields": list(fields)}, **words}


def columns(*fields: dict[str, Any], **words: Any) -> dict[str, Column]:
    return {column.name: column for column in define("acme", parse_table(document(*fields, **words)), 1).columns}


def refusal(*fields: dict[str, Any], **words: Any) -> str:
    with pytest.raises(Invalid) as caught:
        parse_table(document(*fields, **words))
    return str(caught.value)


def test_a_column_says_how_it_is_written() -> None:
    found = columns(
        field(
            "placed", ["null", TIMESTAMP], format="dd.MM.yyyy HH:mm", time_zone="Europe/Berlin", header="Bestellt am"
        ),
        field("price", DECIMAL, decimal_separator=",", thousands_separator=".", trim="true"),
        field("paid", "boolean", true_texts=["ja"], false_texts=["nein"], null_texts=["?"]),
    )
    assert found["placed"].header == "Bestellt am"
    assert found["placed"].written == Writing(formats=("dd.MM.yyyy HH:mm",), time_zone="Europe/Berlin")
    assert found["price"].written == Writing(decimal_separator=",", thousands_separator=".", trim=True)
    assert found["paid"].written == Writing(true_texts=("ja",), false_texts=("nein",), null_texts=("?",))


def test_the_table_says_it_for_all_columns_that_do_not_and_that_have_a_use_for_it() -> None:
    written = {
        "date_format": ["dd.MM.yyyy", "yyyy-MM-dd"],
        "timestamp_format": "%d.%m.%Y %H:%M",
        "time_zone": "Europe/Berlin",
        "decimal_separator": ",",
        "thousands_separator": ".",
        "null_texts": ["-"],
    }
    found = columns(
        field("day", DATE),
        field("other", DATE, format="MM/dd/yyyy"),
        field("at", TIMESTAMP, time_zone="UTC"),
        field("count", "int"),
        field("price", "double", decimal_separator=".", thousands_separator=","),
        field("raw", "bytes"),
        field("parts", {"type": "array", "items": "int"}),
        written=written,
    )
    assert found["day"].written == Writing(formats=("dd.MM.yyyy", "yyyy-MM-dd"), null_texts=("-",))
    assert found["other"].written.formats == ("MM/dd/yyyy",)
    assert found["at"].written == Writing(formats=("%d.%m.%Y %H:%M",), null_texts=("-",))
    assert found["count"].written == Writing(thousands_separator=".", null_texts=("-",))
    assert found["price"].written == Writing(thousands_separator=",", null_texts=("-",))
    assert found["raw"].written == found["parts"].written == AS_USUAL


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (field("a", "string", format="dd.MM.yyyy"), "'a' is a string, which has no use for format"),
        (field("a", "int", decimal_separator=","), "'a' is an int, which has no use for decimal_separator"),
        (field("a", DATE, time_zone="UTC"), "'a' is a date, which has no use for time_zone"),
        (field("a", "bytes", trim=True), "'a' is a bytes, which has no use for trim"),
        (field("a", {"type": "array", "items": "int"}, null_texts=["x"]), "no use for null_texts"),
        (field("a", "double", decimal_separator=",", thousands_separator=","), "are both ','"),
        (field("a", "double", thousands_separator="."), "are both '.'"),
        (field("a", "double", decimal_separator="5"), "decimal_separator is '5'"),
        (field("a", "double", decimal_separator=",,"), "decimal_separator is ',,'"),
        (field("a", "boolean", true_texts=["x"], false_texts=["X"]), "true_texts and false_texts both contain 'x'"),
        (field("a", "boolean", true_texts=["0"]), "true_texts and false_texts both contain '0'"),
        (field("a", "boolean", true_texts=["x"], null_texts=["x"]), "true_texts and null_texts both contain 'x'"),
        (field("a", "boolean", true_texts=[True]), "in quotes"),
        (field("a", TIMESTAMP, time_zone="Europe/Berlim"), "Did you mean 'Europe/Berlin'?"),
        (field("a", "string", trim="maybe"), "trim is 'maybe'"),
        (field("a", "string", header="  "), "header is blank"),
        (field("a", "string", header="_deleted"), "reserved"),
        (field("a", {**DATE, "format": "dd.MM.yyyy"}), "inside the type of 'a'"),
        (
            field("a", {"type": "record", "name": "R", "fields": [field("b", DATE, format="dd.MM.yyyy")]}),
            "inside the type of 'a.b'",
        ),
    ],
)
def test_what_does_not_suit_a_column_is_refused_in_words(words: dict[str, Any], said: str) -> None:
    assert said in refusal(words)


def test_a_header_belongs_to_one_column() -> None:
    assert "both have the header 'X'" in refusal(field("a", "int", header="X"), field("b", "int", header=" X "))
    assert "a name of column 'b'" in refusal(field("a", "int", header="b"), field("b", "int", header="X"))
    assert "a name of column 'b'" in refusal(field("a", "int", header="c"), field("b", "int", aliases=["c"]))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"decimal_separator": ".", "thousands_separator": "."}, "are both '.'"),
        ({"true_texts": ["x"], "false_texts": ["x"]}, "both contain 'x'"),
        ({"date_format": "HH:mm"}, "written.date_format is 'HH:mm', which has no year"),
        ({"time_format": "dd.MM.yyyy"}, "which has no hour"),
        ({"colour": 1}, "Unknown field 'colour' in written"),
        (5, "written is 5"),
    ],
)
def test_defaults_that_cannot_be_meant_are_refused(given: Any, said: str) -> None:
    assert said in refusal(field("a", "int"), written=given)


def test_a_table_has_a_bounded_number_of_formats() -> None:
    """Each takes its time of every chunk, so many would slow down other tenants."""
    many = [f"dd{sign}MM{sign}yyyy" for sign in "./-_:"]
    wide = [field(f"c{number}", DATE) for number in range(1000)]
    assert "5,000 formats together" in refusal(*wide, written={"date_format": many})
    assert "5,000 formats together" in refusal(*(each | {"format": many} for each in wide))
    assert len(columns(*wide, written={"date_format": many[:4]})) == 1000


def test_a_table_default_that_contradicts_a_column_is_refused_by_the_column() -> None:
    found = refusal(field("a", "double", decimal_separator="."), written={"thousands_separator": "."})
    assert found.startswith("Column 'a':")


@pytest.mark.parametrize(
    ("avro", "pattern", "said"),
    [
        (DATE, "dd.mm.yyyy", "Did you mean 'dd.MM.yyyy'?"),
        (DATE, "dd.MM", "which has no year"),
        (DATE, "DD.MM.YYYY", "at character 1, 'DD' means nothing. Did you mean 'dd.MM.yyyy'?"),
        (DATE, "dd.MM.YYYY", "at character 7, 'YYYY' means nothing. Did you mean 'dd.MM.yyyy'?"),
        (DATE, "%d.MM.%Y", "at character 4, 'MM' is of another notation than %. Did you mean '%d.%m.%Y'?"),
        (DATE, "%d.%m.%Q", "at character 7, '%Q' means nothing"),
        (DATE, "%d.%m.%", "at character 7, a letter is missing"),
        (DATE, "dd.MM.yyyy XXX", "which has an offset"),
        (DATE, "dMyyyy", "at character 2, digits follow the day"),
        (DATE, "dd.dd.yyyy", "at character 4, the day stands a second time"),
        (DATE, "dd.MM.yyyy[ HH:mm]", "Give a list of formats"),
        (DATE, "dd.MM.yyyy 'x", "a quote is never closed"),
        (DATE, "", "format is ''"),
        (TIMESTAMP, "yyyy-MM-ddTHH:mm", "at character 11, 'T' means nothing. Did you mean \"yyyy-MM-dd'T'HH:mm\"?"),
        (TIMESTAMP, "yyyy-MM-dd hh:mm", "an hour of 12 needs AM or PM. Write 'yyyy-MM-dd HH:mm' for 24 hours"),
        (TIMESTAMP, "%Y-%m-%d %H:%M %p", "AM or PM needs an hour of 12. Likely '%Y-%m-%d %I:%M %p'"),
        (TIMESTAMP, "yyyy-MM-dd ss", "a second without a minute"),
        (TIMESTAMP, "yyyy-MM-dd mm", "a minute without an hour"),
        (TIME, "HH:MM", "Did you mean 'HH:mm'?"),
        (TIME, "HH:mm XXX", "which has an offset"),
        (DATE, ["dd.MM.yyyy", "dd.MM"], "'dd.MM', which has no year"),
        (DATE, [], "format is []"),
        (DATE, [5], "format is [5]"),
    ],
)
def test_a_format_that_cannot_be_meant_is_refused_with_its_place_and_a_proposal(
    avro: Any, pattern: Any, said: str
) -> None:
    assert said in refusal(field("a", avro, format=pattern))


@pytest.mark.parametrize(
    ("letters", "directives"),
    [
        ("dd.MM.yyyy", "%d.%m.%Y"),
        ("yyyy-MM-dd'T'HH:mm:ssXXX", "%Y-%m-%dT%H:%M:%S%z"),
        ("MMM dd, yy hh:mm a", "%b %d, %y %I:%M %p"),
        ("EEEE, MMMM dd yyyy", "%A, %B %d %Y"),
        ("yyyy-MM-dd HH:mm:ss", "%F %T"),
    ],
)
def test_both_notations_say_the_same(letters: str, directives: str) -> None:
    def said(pattern: str) -> list[tuple[str, str]]:
        return [(part.field, part.text) for part in parse_pattern(pattern).parts]

    assert said(letters) == said(directives)


def test_a_definition_from_before_these_words_keeps_its_fingerprint() -> None:
    schema = {"type": "record", "name": "t", "fields": [field("id", "long"), field("day", DATE)]}
    before = define("acme", parse_table({"schema": schema, "primary_key": ["id"]}), 1)
    assert before.fingerprint == "4976b436ba2489e436500b089143a681"
    assert b"repeated_header" not in before.to_json()
    assert b"written" not in before.to_json()


def test_attributes_of_a_definition_from_before_these_words_mean_nothing() -> None:
    """The schema of an old definition may hold a word that nobody read. It must not break or change the table now."""
    plain = parse_table(document(field("day", DATE), field("note", "string")))
    body = json.loads(define("acme", plain, 1).to_json())
    body["table"]["schema"]["fields"] = [field("day", DATE, format="dd.MM.yyyy"), field("note", "string", format=5)]
    old = Definition.from_json(json.dumps(body).encode())
    assert [column.written for column in old.columns] == [AS_USUAL, AS_USUAL]


def test_a_definition_keeps_how_its_columns_are_written() -> None:
    table = parse_table(
        document(
            field("day", DATE, format=["dd.MM.yyyy", "yyyy-MM-dd"], header="Tag"),
            field("n", "double"),
            written={"decimal_separator": ",", "null_texts": ["-"]},
            csv={"repeated_header": "reject"},
        )
    )
    first = define("acme", table, 1)
    again = Definition.from_json(first.to_json())
    assert (again.fingerprint, again.columns) == (first.fingerprint, first.columns)
    assert again.table == table
    assert again.table.csv.repeated_header == "reject"
    assert parse_table(json.loads(json.dumps(table_document_of(table)))) == table


def test_another_way_of_writing_is_a_revision_that_changes_no_row() -> None:
    before = parse_table(document(field("day", DATE), field("n", "double")))
    after = parse_table(
        document(field("day", DATE, format="dd.MM.yyyy"), field("n", "double"), written={"decimal_separator": ","})
    )
    assert before != after
    for policy in ("backward", "forward", "full_transitive"):
        stricter = parse_table(
            {**document(field("day", DATE, header="Tag"), field("n", "double")), "compatibility": policy}
        )
        assert check(define("acme", before, 1), [], stricter) == ()
    assert check(define("acme", before, 1), [], after) == ()
    assert settings_changed(before, after) == [
        'written.decimal_separator: null -> ","',
        'format of day: null -> "dd.MM.yyyy"',
    ]
    assert settings_changed(after, before)[-1] == 'format of day: "dd.MM.yyyy" -> null'


def test_names_of_a_file_are_matched_by_header_then_name_then_alias() -> None:
    found = tuple(
        columns(
            field("a", "int", header="Nr."), field("b", "int", aliases=["bb"]), field("c", "int", header="C!")
        ).values()
    )
    assert assigned(["Nr.", "bb", "c"], found) == {"a": "Nr.", "b": "bb", "c": "c"}
    assert assigned(["a", "b", "C!"], found) == {"a": "a", "b": "b", "c": "C!"}
    assert assigned(["a", "Nr."], found) == {"a": "Nr."}


def test_a_word_that_is_almost_one_of_these_gets_a_warning() -> None:
    given = document(field("at", TIMESTAMP, timezone="UTC", formats="x", doc="y"))
    found = table_warnings(parse_table(given), given)
    assert [(one.field, one.likely) for one in found] == [
        ("schema.at.timezone", "Likely time_zone."),
        ("schema.at.formats", "Likely format."),
    ]
