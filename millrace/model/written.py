"""How people write the values of a table's columns: attributes of an Avro field, and the table's defaults for all columns.

Refuses attributes that the column's type has no use for, and attributes that contradict each other."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any
from zoneinfo import available_timezones

from millrace.model.cron import parse_zone
from millrace.model.documents import flag, listed, mapping, text
from millrace.model.errors import Invalid
from millrace.model.pattern_fit import DATE, MOMENTS, TIMES, TIMESTAMPS, refuse_unfit
from millrace.model.patterns import parse_pattern

MOST_TEXTS, MOST_FORMATS = 100, 20
TRUE_TEXTS, FALSE_TEXTS = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
_FRACTIONAL = ("float", "double", "decimal")
_NUMERIC = ("int", "long", *_FRACTIONAL)
_TEXTUAL = (*_NUMERIC, "boolean", *MOMENTS, "string", "enum", "uuid")
USED_BY: dict[str, tuple[str, ...]] = {
    "format": MOMENTS,
    "time_zone": TIMESTAMPS,
    "decimal_separator": _FRACTIONAL,
    "thousands_separator": _NUMERIC,
    "true_texts": ("boolean",),
    "false_texts": ("boolean",),
    "null_texts": _TEXTUAL,
    "trim": _TEXTUAL,
}
COLUMN_WORDS = (*USED_BY, "header")
_FORMAT_OF = {
    DATE: "date_format",
    **dict.fromkeys(TIMES, "time_format"),
    **dict.fromkeys(TIMESTAMPS, "timestamp_format"),
}
_NEVER_SEPARATORS = "+-eE0123456789"


@dataclass(frozen=True, slots=True)
class Writing:
    """How the cells of one column are written. Without formats moments are ISO 8601; without texts booleans are
    true/false, yes/no …; an empty thousands separator means none."""

    formats: tuple[str, ...] = ()
    time_zone: str = "UTC"
    decimal_separator: str = "."
    thousands_separator: str = ""
    true_texts: tuple[str, ...] = TRUE_TEXTS
    false_texts: tuple[str, ...] = FALSE_TEXTS
    null_texts: tuple[str, ...] = ()
    trim: bool = False

    @property
    def has_own_numbers(self) -> bool:
        return bool(self.thousands_separator) or self.decimal_separator != "."

    @property
    def has_own_booleans(self) -> bool:
        return self.true_texts != TRUE_TEXTS or self.false_texts != FALSE_TEXTS


AS_USUAL = Writing()


@dataclass(frozen=True, slots=True)
class WrittenDefaults:
    """The document's `written`: None or empty where it says nothing."""

    date_format: tuple[str, ...] = ()
    time_format: tuple[str, ...] = ()
    timestamp_format: tuple[str, ...] = ()
    time_zone: str | None = None
    decimal_separator: str | None = None
    thousands_separator: str | None = None
    true_texts: tuple[str, ...] = ()
    false_texts: tuple[str, ...] = ()
    null_texts: tuple[str, ...] = ()
    trim: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """What is said, as the document says it."""
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: _plain(name, value) for name, value in said.items() if value not in (None, ())}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "WrittenDefaults":
        many = {name: (value,) if isinstance(value, str) else value for name, value in data.items() if _is_many(name)}
        return WrittenDefaults(**{**data, **{name: tuple(value) for name, value in many.items()}})


def _is_many(name: str) -> bool:
    return name.endswith(("_format", "_texts"))


def _plain(name: str, value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    return value[0] if name.endswith("_format") and len(value) == 1 else list(value)


DEFAULT_WORDS = tuple(each.name for each in fields(WrittenDefaults))


def parse_defaults(given: object) -> WrittenDefaults:
    """The document's `written`."""
    words = mapping("written", given, DEFAULT_WORDS)
    said = {word: _READERS[word](f"written.{word}", words[word]) for word in words if words[word] is not None}
    for kind, word in _FORMAT_OF.items():
        for pattern in said.get(word, ()):
            refuse_unfit(parse_pattern(pattern, f"written.{word}"), kind, f"written.{word}")
    defaults = WrittenDefaults(**said)
    if defaults.decimal_separator is not None and defaults.decimal_separator == defaults.thousands_separator:
        raise _same_separators("written", defaults.decimal_separator)
    _refuse_overlaps("written", defaults.true_texts, defaults.false_texts, defaults.null_texts)
    return defaults


def written_of(name: str, kind: str, field_words: Mapping[str, Any], defaults: WrittenDefaults) -> Writing:
    """How a column is written. `kind` is its logical type, else its Avro type."""
    where = f"Column {name!r}:"
    own = {word: field_words[word] for word in USED_BY if field_words.get(word) is not None}
    for word in own:
        if kind not in USED_BY[word]:
            raise Invalid(
                f"Column {name!r} is {_a(kind)}, which has no use for {word}.",
                remedy=f"{word} is for {', '.join(USED_BY[word])}.",
            )
    said = {word: _READERS[word](f"{where} {word}", value) for word, value in own.items()}
    for pattern in said.get("format", ()):
        refuse_unfit(parse_pattern(pattern, f"{where} format"), kind, f"{where} format")
    for word, kinds in USED_BY.items():
        if kind in kinds and word not in said:
            given = getattr(defaults, _FORMAT_OF[kind] if word == "format" else word)
            if given not in (None, ()):
                said[word] = given
    if "format" in said:
        said["formats"] = said.pop("format")
    written = Writing(**said)
    _refuse_contradictions(where, kind, written, said)
    return written


def header_of(name: str, field_words: Mapping[str, Any]) -> str | None:
    """The title that the column has in files."""
    given = field_words.get("header")
    if given is None:
        return None
    title = text(f"Column {name!r}: header", given).strip()
    if not title:
        raise Invalid(f"Column {name!r}: header is blank.", remedy="Give the title that the column has in the file.")
    return title


def says_something(field_words: Mapping[str, Any]) -> bool:
    return any(field_words.get(word) is not None for word in COLUMN_WORDS)


def _refuse_contradictions(where: str, kind: str, written: Writing, said: Mapping[str, Any]) -> None:
    if kind in _FRACTIONAL and written.decimal_separator == written.thousands_separator:
        raise _same_separators(where, written.decimal_separator)
    if kind == "boolean":
        nulls = written.null_texts if "true_texts" in said or "false_texts" in said else ()
        _refuse_overlaps(where, written.true_texts, written.false_texts, nulls)


def _same_separators(where: str, separator: str) -> Invalid:
    return Invalid(
        f"{where} decimal_separator and thousands_separator are both {separator!r}.",
        remedy="Give different ones: 1.234,56 has decimal_separator ',' and thousands_separator '.'.",
    )


def _refuse_overlaps(where: str, true: tuple[str, ...], false: tuple[str, ...], null: tuple[str, ...]) -> None:
    lists = (("true_texts", true), ("false_texts", false), ("null_texts", null))
    seen: dict[str, str] = {}
    for word, texts in lists:
        for one in {each.lower() for each in texts}:
            if one in seen:
                raise Invalid(
                    f"{where} {seen[one]} and {word} both contain {one!r}.",
                    remedy="Give each text one meaning. A list that is not given is the usual one: true, t, yes, y, 1 "
                    "and false, f, no, n, 0.",
                )
            seen[one] = word


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _read_formats(what: str, given: object) -> tuple[str, ...]:
    patterns = [given] if isinstance(given, str) else listed(what, given)
    if not 1 <= len(patterns) <= MOST_FORMATS or not all(isinstance(pattern, str) for pattern in patterns):
        raise Invalid(
            f"{what} is {given!r:.60}.", remedy=f"Give one pattern or a list of 1 to {MOST_FORMATS}: dd.MM.yyyy."
        )
    for pattern in patterns:
        parse_pattern(pattern, what)
    return tuple(dict.fromkeys(patterns))


def _read_texts(what: str, given: object) -> tuple[str, ...]:
    texts = [given] if isinstance(given, str) else listed(what, given)
    # YAML reads a bare yes, no or 0 as a boolean or a number.
    if not 1 <= len(texts) <= MOST_TEXTS or not all(isinstance(one, str) and len(one) <= 1000 for one in texts):
        raise Invalid(f"{what} is {given!r:.60}.", remedy=f"Give a list of 1 to {MOST_TEXTS} texts, in quotes.")
    if any("\0" in one for one in texts):
        raise Invalid(f"{what} contains a NUL character.")
    return tuple(dict.fromkeys(texts))


def _read_separator(what: str, given: object) -> str:
    if (
        not isinstance(given, str)
        or len(given) != 1
        or given in _NEVER_SEPARATORS
        or given.isalnum()
        or (ord(given) < 32)
    ):
        raise Invalid(f"{what} is {given!r:.60}.", remedy="Give one character that is no digit, letter or sign.")
    return given


def _read_zone(what: str, given: object) -> str:
    name = text(what, given)
    try:
        parse_zone(name)
    except Invalid:
        near = get_close_matches(name, available_timezones(), 1, 0.5)
        likely = f"Did you mean {near[0]!r}? " if near else ""
        remedy = f"{likely}Name a zone of the IANA database: UTC, Europe/Helsinki …"
        raise Invalid(f"{what} is {name!r:.60}, which is no time zone.", remedy=remedy) from None
    return name


_READERS: dict[str, Callable[[str, object], Any]] = {
    **dict.fromkeys(("format", "date_format", "time_format", "timestamp_format"), _read_formats),
    "time_zone": _read_zone,
    "decimal_separator": _read_separator,
    "thousands_separator": _read_separator,
    **dict.fromkeys(("true_texts", "false_texts", "null_texts"), _read_texts),
    "trim": flag,
}
