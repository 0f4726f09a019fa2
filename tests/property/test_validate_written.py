"""Random values written by random patterns and separators come back as they were; Python's datetime and decimal agree."""

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millrace.model.columns import column_of
from millrace.model.errors import Invalid
from millrace.model.pattern_fit import refuse_unfit
from millrace.model.patterns import parse_pattern
from millrace.model.written import Writing
from millrace.validate import patterned
from millrace.validate.numbers import plain_numbers
from millrace.validate.text import typed_text
from millrace.validate.zones import in_utc
from tests.support.examples import examples

EPOCH = dt.datetime(1970, 1, 1)
MOMENTS = st.datetimes(dt.datetime(1969, 1, 1), dt.datetime(2068, 12, 31, 23, 59, 59))
DATE_PARTS = st.permutations([["%d", "%e"], ["%m", "%b", "%B"], ["%Y", "%y"]])
CLOCKS = st.sampled_from(["", " %H:%M", "T%H:%M:%S", " %I:%M %p", " %H.%M.%S,%f", " %I:%M:%S%p"])
MARKS = st.sampled_from([".", "/", "-", " ", ", "])


@st.composite
def strptime_patterns(draw: st.DrawFn) -> str:
    mark = draw(MARKS)
    parts = [draw(st.sampled_from(one)) for one in draw(DATE_PARTS)]
    weekday = draw(st.sampled_from(["", "%a ", "%A, "]))
    return weekday + mark.join(parts) + draw(CLOCKS)


def written(moment: dt.datetime, pattern: str) -> str:
    """As Python writes it. %e is no directive of Python everywhere."""
    return moment.strftime(pattern.replace("%e", f"{moment.day:2d}"))


def expected(text: str, pattern: str) -> dt.datetime | None:
    try:
        return dt.datetime.strptime(text, pattern.replace("%e", "%d"))
    except ValueError:
        return None


def parsed(texts: list[str], pattern: str) -> list[dt.datetime | None]:
    found = patterned.timestamps(pa.array(texts), [pattern], "UTC").to_pylist()
    return [None if one is None else one.replace(tzinfo=None) for one in found]


@examples(300)
@given(strptime_patterns(), st.lists(MOMENTS, min_size=1, max_size=8))
def test_moments_come_back_as_python_reads_them(pattern: str, moments: list[dt.datetime]) -> None:
    texts = [written(moment, pattern) for moment in moments]
    assert parsed(texts, pattern) == [expected(text, pattern) for text in texts]


@examples(300)
@given(strptime_patterns(), MOMENTS, st.data())
def test_a_spoilt_cell_is_no_moment_unless_python_takes_it_too(
    pattern: str, moment: dt.datetime, data: st.DataObject
) -> None:
    text = written(moment, pattern)
    at = data.draw(st.integers(0, len(text)))
    spoilt = text[:at] + data.draw(st.sampled_from(["", "0", "x", ".", "é", "99"])) + text[at + 1 :]
    found, wanted = parsed([text, spoilt, text], pattern), expected(spoilt, pattern)
    assert found[0] == found[2] == expected(text, pattern)
    # Python takes other white space and %d without a digit before another; what Millrace takes, Python takes too.
    assert found[1] is None or found[1] == wanted


LETTERS = {
    "yyyy": "{0:%Y}", "yy": "{0:%y}", "MM": "{0:%m}", "M": "{0.month}", "MMM": "{0:%b}", "MMMM": "{0:%B}", "dd": "{0:%d}",
    "d": "{0.day}",
}  # fmt: skip


@examples(200)
@given(
    st.permutations([["yyyy", "yy"], ["MM", "M", "MMM", "MMMM"], ["dd", "d"]]),
    st.lists(MOMENTS, min_size=1, max_size=8),
    st.data(),
)
def test_dates_come_back_from_letters(order: list[list[str]], moments: list[dt.datetime], data: st.DataObject) -> None:
    parts = [data.draw(st.sampled_from(one)) for one in order]
    texts = [".".join(LETTERS[part].format(moment) for part in parts) for moment in moments]
    found = patterned.dates(pa.array(texts), [".".join(parts)]).to_pylist()
    assert found == [moment.date() for moment in moments]


@examples(200)
@given(st.text("dMyHhmsSaXEZ%YmDbBT:./- '", max_size=24))
def test_any_text_is_a_pattern_or_is_refused(text: str) -> None:
    try:
        pattern = parse_pattern(text)
        refuse_unfit(pattern, "timestamp-micros", "The format")
    except Invalid:
        return
    patterned.timestamps(pa.array(["31.12.2024", "", "x" * 200, None]), [text], "UTC")


ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Casablanca",
    "America/Havana",
)


@examples(200)
@given(st.sampled_from(ZONES), st.lists(st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2300, 1, 1)), min_size=1))
def test_local_times_become_moments_as_in_zoneinfo(zone: str, moments: list[dt.datetime]) -> None:
    # Near the changes of the clocks too.
    near = [
        dt.datetime(2024, month, day, hour, 30)
        for month, day in ((3, 10), (3, 31), (10, 27), (11, 3))
        for hour in range(24)
    ]
    times = [*moments, *near]
    local = pa.array([(one - EPOCH) // dt.timedelta(microseconds=1) for one in times]).to_numpy()
    utc, exists = in_utc(local, zone)
    for one, moment, there in zip(times, utc.tolist(), exists.tolist(), strict=True):
        aware = one.replace(tzinfo=ZoneInfo(zone))
        back = aware.astimezone(dt.UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        assert there == (back == one)
        if there:
            assert moment == (aware.astimezone(dt.UTC).replace(tzinfo=None) - EPOCH) // dt.timedelta(microseconds=1)


SEPARATORS = st.sampled_from([(",", "."), (".", ","), (",", " "), (".", "'"), (",", ""), ("٫", "٬"), (",", "\u00a0")])


def spelled(value: Decimal, decimal: str, thousands: str) -> str:
    text = f"{value:,f}" if thousands else f"{value:f}"
    return text.replace(",", "\0").replace(".", decimal).replace("\0", thousands)


@examples(300)
@given(st.lists(st.decimals(-(10**12), 10**12, places=3, allow_nan=False), min_size=1, max_size=10), SEPARATORS)
def test_numbers_come_back_exactly(values: list[Decimal], separators: tuple[str, str]) -> None:
    texts = [spelled(value, *separators) for value in values]
    plain = plain_numbers(pa.array(texts), *separators).to_pylist()
    assert [Decimal(text) for text in plain] == values


def slow_plain(text: str, decimal: str, thousands: str) -> Decimal | None:
    """What a cell is worth, found one letter after the other."""
    whole, point, rest = text.strip(" \t").partition(decimal)
    sign, digits = (whole[:1], whole[1:]) if whole[:1] in ("+", "-") else ("", whole)
    groups = digits.split(thousands) if thousands else [digits]
    if len(groups) > 1 and not (
        1 <= len(groups[0]) <= 3 and groups[0][0] != "0" and all(len(group) == 3 for group in groups[1:])
    ):
        return None
    joined = "".join(groups)
    if not all(letter in "0123456789" for letter in joined + rest) or not joined + rest:
        return None
    return Decimal(f"{sign}{joined or '0'}{'.' + rest if point and rest else ''}")


@examples(500)
@given(
    st.lists(st.text("0123456789.,'- ", max_size=10), min_size=1, max_size=10),
    st.sampled_from([(",", "."), (".", ","), (",", " ")]),
)
def test_whatever_a_cell_holds_it_is_worth_what_a_careful_reader_says(
    texts: list[str], separators: tuple[str, str]
) -> None:
    decimal, thousands = separators
    column: Any = column_of(
        "c", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 12}, nullable=True
    )
    column = replace(column, written=Writing(decimal_separator=decimal, thousands_separator=thousands))
    values, faults = typed_text(column, pa.array(texts))
    assert values.to_pylist() == [slow_plain(text, decimal, thousands) for text in texts]
    assert sum(len(fault.rows) for fault in faults) == values.null_count
