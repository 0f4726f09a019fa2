"""JSON Schemas of the documents, for editors and for checks without a platform. They describe what the parsers take.

`schemas/*.json` are their published copies. Some faults only the parsers can find: a column that does not exist, an empty
range."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from millrace.declare.table import CHOICES, MOST_RAW_DAYS, MOST_SKIPPED
from millrace.declare.written_schemas import column_words, written_words
from millrace.model import agreement as a
from millrace.model import rules as r
from millrace.model.budget import ON_BUDGET
from millrace.model.documents import NUMBER, WHOLE
from millrace.model.formats import ENCODINGS, every_format, file_types
from millrace.model.names import MAX_NAME
from millrace.model.quantity import LARGEST, QUANTITY
from millrace.model.table import REPEATED_HEADER

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _text(most: int = 1000, least: int = 1, about: str = "") -> Schema:
    return {"type": "string", "minLength": least, "maxLength": most, **_about(about)}


def _about(about: str) -> Schema:
    return {"description": about} if about else {}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _enum(words: tuple[str, ...]) -> Schema:
    return {"enum": list(words)}


def _whole(least: int, most: int, about: str = "") -> Schema:
    spelled = {"type": "string", "pattern": f"^{WHOLE.pattern}$"}
    return {"anyOf": [{"type": "integer", "minimum": least, "maximum": most}, spelled], **_about(about)}


def _number(least: float, most: float, about: str = "") -> Schema:
    spelled = {"type": "string", "pattern": f"^{NUMBER.pattern}$"}
    return {"anyOf": [{"type": "number", "minimum": least, "maximum": most}, spelled], **_about(about)}


def _mapping(properties: dict[str, Schema], required: tuple[str, ...] = (), about: str = "") -> Schema:
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **needed, "additionalProperties": False, **_about(about)}


def _list(items: Schema, least: int = 0, about: str = "") -> Schema:
    return {"type": "array", "items": items, **({"minItems": least} if least else {}), **_about(about)}


_FLAG: Schema = {
    "anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$"}]
}
_NAME: Schema = {"type": "string", "pattern": f"^[A-Za-z][A-Za-z0-9_-]{{0,{MAX_NAME - 1}}}$"}
_QUANTITY: Schema = {
    "anyOf": [
        {"type": "number", "minimum": 0, "maximum": LARGEST},
        {"type": "string", "maxLength": 40, "pattern": f"^{re.sub(r'[?]P<[a-z]+>', '?:', QUANTITY.pattern)}$"},
    ],
    "description": "As Kubernetes writes quantities: 250m, 2, 64Mi, 1G.",
}
_COLUMN: Schema = _text(255, about="A column of the table.")
_ADDRESS: Schema = {**_text(2000), "pattern": "^https?://"}
_BOUND: Schema = {"type": ["number", "string"]}

_TESTS: dict[str, dict[str, Schema]] = {
    "required": {"required": _FLAG},
    "nulls": {"max_null_percent": _number(0, 100, "The largest share of nulls in an import.")},
    "range": {"min": _BOUND, "max": _BOUND},
    "set": {"in": {**_list({"type": ["string", "number", "boolean"]}, 1), "maxItems": r.MOST_VALUES}},
    "pattern": {"matches": _text(1000, about="An RE2 pattern that is found somewhere in the text; ^…$ for all of it.")},
    "length": {"min_length": _whole(0, 1 << 31), "max_length": _whole(0, 1 << 31)},
    "check": {"check": _text(2000, about="An expression over columns that must be true: helpful <= total.")},
    "fresh": {name: _whole(0, r.MOST_SECONDS) for name in r.KINDS["fresh"]},
    "reference": {
        "references": {
            "type": "string",
            "pattern": "^[A-Za-z][A-Za-z0-9_-]{0,62}\\..{1,255}$",
            "description": "table.column: the primary key of another table of the tenant.",
        }
    },
    "unique": {"unique": {"anyOf": [{"const": "key"}, _list(_COLUMN, 1)]}},
}


def _bounds(kind: str) -> Schema:
    shares = {"min_percent": _number(0, 1e6), "max_percent": _number(0, 1e6), "last": _whole(1, 100)}
    about = f"Bounds of an import's {kind}, by themselves or as a share of the mean of the last imports."
    some = [{"required": [word]} for word in r.BOUND_WORDS if word != "last"]
    return {**_mapping({"min": _whole(0, 1 << 62), "max": _whole(0, 1 << 62), **shares}, about=about), "anyOf": some}


def _rule(kind: str) -> Schema:
    tests = {kind: _bounds(kind)} if kind in ("rows", "bytes") else _TESTS[kind]
    actions = r.ACTIONS if kind in r.OF_ROWS else tuple(action for action in r.ACTIONS if action != r.REJECT)
    column = {"column": _COLUMN} if kind in r.OF_COLUMNS else {}
    words = {"name": _NAME, **column, **tests, "action": _enum(actions), "description": _text(1000, 0)}
    return {**_mapping(words, tuple(column)), "anyOf": [{"required": [word]} for word in tests]}


_RULES: Schema = {
    "type": "array",
    "maxItems": r.MOST_RULES,
    "items": {"oneOf": [_rule(kind) for kind in r.KINDS]},
    "description": "Rules of quality; each rejects or flags rows, holds the import, or only counts.",
}


def _in_any_case(words: Iterable[str]) -> Schema:
    spelled = "|".join("".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in word) for word in words)
    return {"type": "string", "pattern": f"^({spelled})$"}


def sinks_schema(connectors: Mapping[str, tuple[Schema, list[str]]]) -> Schema:
    """Of a list of sinks: by kind, the schema of each setting and which settings are required. Kinds that are not listed
    may be another package's: any setting may be theirs."""
    known = [
        _mapping({"kind": {"const": kind}, **_OF_EVERY_SINK, **settings}, ("kind", *required))
        for kind, (settings, required) in connectors.items()
    ]
    other = {
        "type": "object",
        "properties": {"kind": {**_NAME, "not": {"enum": list(connectors)}}, **_OF_EVERY_SINK},
        "required": ["kind"],
    }
    return _list({"anyOf": [_NAME, *known, other]}, 1, "Where accepted rows end up.")


_OF_EVERY_SINK: Schema = {"name": _NAME, "required": {"type": "boolean"}}


def table_schema(sinks: Schema) -> Schema:
    """Of a table's declaration: seed 002's data file configuration, or the native form."""
    aliases = [alias for each in every_format() for alias in each.aliases]
    file_type = {"anyOf": [_enum(file_types()), _in_any_case(aliases)]}
    character: Schema = {"type": "string", "pattern": "^[\\x01-\\x09\\x0b\\x0c\\x0e-\\x7f]$"}
    csv = {
        "header": _FLAG,
        "delimiter": character,
        "quote": character,
        "null_text": _text(1000, 0),
        "encoding": _in_any_case(ENCODINGS),
        "repeated_header": {
            **_enum(REPEATED_HEADER),
            "description": "What happens to a later line that equals the header.",
        },
        "skip_lines": {**_number(0, MOST_SKIPPED), "description": "How many lines may stand before the header."},
    }
    words: dict[str, Schema] = {
        "tenant": {**_NAME, "description": "Whose table it is, where no agreement beside it says so."},
        "name": _text(about="A title for people."),
        "table": {**_NAME, "description": "The table's name; else the schema's."},
        "description": _text(10_000, 0),
        "file_type": file_type,
        "key_space": _or_null(_NAME),
        "csv.first.row.as.header": _FLAG,
        "csv": _mapping(csv),
        "schema": {"$ref": "#/$defs/record"},
        "primary_key": _list({"anyOf": [_COLUMN, _list(_COLUMN)]}, about="Cassandra's nested spelling is understood."),
        "max_file_size_mb": _or_null(_number(0, 1e9)),
        "sinks": sinks,
        **{word: _enum(values) for word, values in CHOICES.items()},
        **_budget(),
        "keep_raw_days": _or_null(_whole(1, MOST_RAW_DAYS, "How long raw chunks are kept for what-ifs.")),
        "change_feed": {
            **_FLAG,
            "description": "Whether readers can ask which rows each version of the table changed.",
        },
        "rules": _RULES,
        "written": _or_null(
            _mapping(written_words(), about="How values are written, in every column that does not say.")
        ),
    }
    return {"$schema": DIALECT, "title": "A table of Millrace", **_mapping(words, ("schema",)), "$defs": _avro()}


def _avro() -> dict[str, Schema]:
    """Checks Avro's own words. Other words in a schema are ignored."""
    primitives = ["boolean", "int", "long", "float", "double", "bytes", "string"]
    nested = {"type": "object", "required": ["type"], "properties": {"type": {"type": ["string", "object"]}}}
    field = {
        "type": "object",
        "required": ["name", "type"],
        "properties": {
            "name": _text(255),
            "type": {"$ref": "#/$defs/type"},
            "default": {},
            "aliases": {"type": "array", "items": {"type": "string"}},
            "doc": {},
            "logicalType": {},
            **column_words(),
        },
    }
    record = {
        "type": "object",
        "required": ["type", "fields"],
        "properties": {
            "type": {"const": "record"},
            "name": {},
            "fields": {"type": "array", "minItems": 1, "maxItems": 2000, "items": {"$ref": "#/$defs/field"}},
        },
        "description": "An Avro record: the table's columns.",
    }
    union = {"type": "array", "minItems": 1, "items": {"anyOf": [{"enum": ["null", *primitives]}, nested]}}
    return {"record": record, "field": field, "type": {"anyOf": [{"enum": primitives}, nested, union]}}


def agreement_schema(sinks: Schema) -> Schema:
    """Of a tenant's service agreement: seed 002's, or the native form."""
    cron = _text(about="Cron as Kubernetes reads it: five fields, names, ranges, steps, @hourly, @every 1h30m.")
    zone = _text(about="A zone of the IANA database; else UTC.")
    schedule = _mapping({"cron": cron, "time_zone": zone, "missed": _enum(a.MISSED)}, ("cron",))
    amounts = _or_null(_mapping({"cpu": _or_null(_QUANTITY), "memory": _or_null(_QUANTITY)}))
    timed: Schema = {"anyOf": [cron, schedule, {"type": "null"}]}
    resources = _or_null(_mapping({"requests": amounts, "limits": amounts}))
    notification = _mapping({"url": _ADDRESS, "events": _list(_text()), "name": _or_null(_NAME)}, ("url",))
    words: dict[str, Schema] = {
        "client": {**_NAME, "description": "The tenant's name."},
        "tenant": {**_NAME, "description": "The same as client."},
        "description": _text(10_000, 0),
        "data_retention_period_days": _whole(0, a.MOST_DAYS, "How long files, raw chunks and rejected rows are kept."),
        "sink_retention_days": _or_null(_whole(0, a.MOST_DAYS, "How long rows are kept in sinks; else for ever.")),
        "schedule": timed,
        "app": _or_null(_app(timed, resources)),
        "apps": _or_null({**_list({**_app(timed, resources), "required": ["name"]}), "maxItems": a.MOST_APPS}),
        "resources": resources,
        "quotas": _or_null(_mapping({name: _or_null(_QUANTITY) for name in a.QUOTAS})),
        "encryption": _FLAG,
        "priority": _whole(a.LOWEST_PRIORITY, a.HIGHEST_PRIORITY),
        "notifications": _or_null({**_list({"anyOf": [_ADDRESS, notification]}), "maxItems": a.MOST_NOTIFICATIONS}),
        "sinks": _or_null(sinks),
        "rules": _or_null(_RULES),
        **_budget(),
    }
    one_name = {"anyOf": [{"required": ["client"]}, {"required": ["tenant"]}]}
    return {"$schema": DIALECT, "title": "A service agreement of Millrace", **_mapping(words), **one_name}


def _budget() -> dict[str, Schema]:
    return {
        "max_rejected": _or_null(_number(0, 1e15)),
        "max_rejected_percent": _or_null(_number(0, 100)),
        "max_rejected_min_rows": _number(0, 1e15),
        "on_budget": _enum(ON_BUDGET),
    }


def _app(schedule: Schema, resources: Schema) -> Schema:
    scale = {
        "min": _whole(1, a.MOST_REPLICAS),
        "max": _whole(1, a.MOST_REPLICAS),
        "target_cpu_percent": _whole(1, 1000),
    }
    command: Schema = _list(_text(4096))
    env = {
        "type": "object",
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]{0,99}$", "not": {"enum": list(a.OWN_ENV)}},
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    }
    words = {
        "image": _or_null(_text(512)),
        "command": command,
        "mode": _enum(a.MODES),
        "env": env,
        "uploads_first": _FLAG,
        "replicas": _whole(0, a.MOST_REPLICAS),
        "autoscale": _or_null(_mapping(scale, ("max",))),
        "name": _NAME,
        "schedule": schedule,
        "resources": resources,
    }
    image = {"required": ["image"], "properties": {"image": {"type": "string"}}}
    runs = {"required": ["command"], "properties": {"command": {"minItems": 1}}}
    return {**_mapping(words, about="The tenant's program."), "anyOf": [image, runs]}


# The caller gives the sinks: this package does not know them.
SCHEMAS = {"table": table_schema, "agreement": agreement_schema}
