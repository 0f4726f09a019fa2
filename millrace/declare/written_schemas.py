"""JSON Schemas of how values are written: a column's attributes and the table's defaults."""

from typing import Any

from millrace.model.patterns import MOST_CHARACTERS
from millrace.model.written import MOST_FORMATS, MOST_TEXTS

Schema = dict[str, Any]

_PATTERN: Schema = {"type": "string", "minLength": 1, "maxLength": MOST_CHARACTERS}
_FORMATS: Schema = {
    "anyOf": [
        _PATTERN,
        {"type": "array", "minItems": 1, "maxItems": MOST_FORMATS, "items": _PATTERN},
        {"type": "null"},
    ],
    "description": "A pattern, or several of which the first that fits counts: dd.MM.yyyy HH:mm or %d.%m.%Y %H:%M.",
}
_TEXT: Schema = {"type": "string", "maxLength": 1000}
_TEXTS: Schema = {
    "anyOf": [_TEXT, {"type": "array", "minItems": 1, "maxItems": MOST_TEXTS, "items": _TEXT}, {"type": "null"}]
}
_SEPARATOR: Schema = {
    "anyOf": [{"type": "string", "minLength": 1, "maxLength": 1, "pattern": "^[^0-9A-Za-z+-]$"}, {"type": "null"}]
}
_FLAG: Schema = {
    "anyOf": [
        {"type": "boolean"},
        {"type": "string", "pattern": "^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$"},
        {"type": "null"},
    ]
}
_ZONE: Schema = {
    "type": ["string", "null"],
    "maxLength": 1000,
    "description": "A zone of the IANA database. Timestamps without an offset are of this zone; else UTC.",
}


def _common() -> dict[str, Schema]:
    return {
        "time_zone": _ZONE,
        "decimal_separator": {**_SEPARATOR, "description": "Between the digits and the fraction; else a point."},
        "thousands_separator": {**_SEPARATOR, "description": "Between groups of three digits; else none."},
        "true_texts": {**_TEXTS, "description": "What means true, in any case."},
        "false_texts": {**_TEXTS, "description": "What means false, in any case."},
        "null_texts": {**_TEXTS, "description": "What means null, beside csv.null_text."},
        "trim": {**_FLAG, "description": "Whether white space around values is removed."},
    }


def column_words() -> dict[str, Schema]:
    """Of a field of the schema."""
    title = {"type": ["string", "null"], "minLength": 1, "maxLength": 1000}
    return {"format": _FORMATS, **_common(), "header": {**title, "description": "The column's title in files."}}


def written_words() -> dict[str, Schema]:
    """Of the table's `written`."""
    return {"date_format": _FORMATS, "time_format": _FORMATS, "timestamp_format": _FORMATS, **_common()}
