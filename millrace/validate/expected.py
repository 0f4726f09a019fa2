"""What a cell of a column should look like, in words for the reasons of rejected rows."""

from millrace.model.columns import Column
from millrace.model.pattern_fit import MOMENTS

_SHOWN = 4
_CALLED = {
    "int": "an int",
    "boolean": "a boolean (true or false)",
    "date": "a date (YYYY-MM-DD)",
    "time-millis": "a time (HH:MM:SS[.fff])",
    "time-micros": "a time (HH:MM:SS[.ffffff])",
    "timestamp-millis": "a timestamp (YYYY-MM-DD HH:MM:SS[.ffffff][Z])",
    "timestamp-micros": "a timestamp (YYYY-MM-DD HH:MM:SS[.ffffff][Z])",
}


def meaning(column: Column) -> str:
    """The name that decides how cells are read: the column's logical type, else its kind."""
    return column.logical or column.kind


def called(name: str) -> str:
    """A type in words, as it is usually written."""
    return _CALLED.get(name, f"a {name}")


def expected(column: Column) -> str:
    """The column's type in words, as it is written."""
    written, name = column.written, meaning(column)
    if name in MOMENTS and written.formats:
        return f"a {name.partition('-')[0]} ({_either(written.formats)})"
    if name == "boolean" and written.has_own_booleans:
        return f"a boolean ({_either((*written.true_texts[:2], *written.false_texts[:2]))})"
    if written.has_own_numbers:
        groups = f"1{written.thousands_separator}234"
        whole = name in ("int", "long")
        return f"{called(name)} ({groups if whole else groups + written.decimal_separator + '56'})"
    return called(name)


def _either(words: tuple[str, ...]) -> str:
    shown = [repr(word) if not word.strip() else word for word in words[:_SHOWN]]
    return " or ".join([*shown, *(["…"] if len(words) > _SHOWN else [])])
