"""A table's document in, native or as in seed 002, its declaration out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from millrace.declare.rules_fit import refuse_misfit
from millrace.model.budget import BUDGET_WORDS, Budget, parse_budget
from millrace.model.column_writing import has_writing, refuse_misplaced, with_writing
from millrace.model.columns import COLUMNS_OF_FEED, Column, parse_columns, refuse_repeated
from millrace.model.defaults import refuse_strange_defaults
from millrace.model.documents import flag, mapping, number, one_of, text, whole
from millrace.model.errors import Invalid
from millrace.model.fields import Field, field_of
from millrace.model.formats import ENCODINGS, file_type_of, file_types
from millrace.model.names import checked_name
from millrace.model.rules import parse_rules
from millrace.model.sinks import parse_targets
from millrace.model.table import REPEATED_HEADER, CsvDialect, TableDeclaration
from millrace.model.written import WrittenDefaults, parse_defaults

# Words with a few values; the first is the default.
CHOICES = {
    "unknown_fields": ("reject", "ignore", "rescue"),
    "deletion_vectors": ("auto", "never"),
    "concurrency": ("concurrent", "exclusive"),
    "on_error": ("reject_row", "stop"),
    "publish": ("rolling", "atomic"),
    "compatibility": (
        "backward", "backward_transitive", "forward", "forward_transitive", "full", "full_transitive", "none",
    ),
}  # fmt: skip
WORDS = {
    "name", "table", "file_type", "key_space", "csv.first.row.as.header", "csv", "schema", "primary_key", "max_file_size_mb",
    "sinks", "description", "rules", "written", "keep_raw_days", "change_feed", *BUDGET_WORDS, *CHOICES,
}  # fmt: skip
CSV_WORDS = ("header", "delimiter", "quote", "null_text", "encoding", "repeated_header", "skip_lines")
MOST_SKIPPED = 1000
MOST_RAW_DAYS = 3650
MOST_FORMATS_OF_TABLE = 4000


def parse_table(document: Mapping[str, Any]) -> TableDeclaration:
    """A data file configuration as in seed 002, or the native form with the same words."""
    _refuse_unspeakable(document)
    mapping("the table's declaration", document, WORDS)
    text("description", document.get("description", ""), 10_000, 0)
    schema = document.get("schema")
    columns = parse_columns(schema)
    for column in columns:
        _refuse_repeated_inside(field_of(column), column.name)
    refuse_strange_defaults(columns)
    assert isinstance(schema, dict)
    name = checked_name("table", document.get("table", schema.get("name")))
    key = _primary_key(document.get("primary_key", []), columns)
    targets = parse_targets(document.get("sinks", ["delta"]))
    rules = parse_rules(document.get("rules", []))
    for rule in rules:
        refuse_misfit(rule, columns, key)
    written = _written(document, schema, columns)
    return TableDeclaration(
        name=name,
        schema=schema,
        primary_key=key,
        file_type=one_of("file_type", file_type_of(document.get("file_type", "csv")), file_types()),
        csv=_dialect(document),
        max_file_bytes=_max_file_bytes(document.get("max_file_size_mb")),
        sinks=tuple(target.name for target in targets if target.required),
        targets=targets,
        partition_key=_partition_key(document.get("primary_key", [])),
        key_space=None if document.get("key_space") is None else checked_name("key space", document["key_space"]),
        title=text("name", document.get("name", name)),
        budget=_budget(document),
        keep_raw_days=_keep_raw_days(document.get("keep_raw_days")),
        change_feed=_change_feed(document.get("change_feed", False), columns),
        rules=rules,
        written=written,
        **{word: one_of(word, document.get(word, values[0]), values) for word, values in CHOICES.items()},
    )


def _refuse_unspeakable(document: Mapping[str, Any]) -> None:
    """Refuses lone surrogates: JSON can escape them, but no text can show them."""
    try:
        json.dumps(document, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as failed:
        around = failed.object[max(0, failed.start - 20) : failed.end + 20]
        raise Invalid(f"Half a character stands alone in {around!r}.", remedy="Write valid Unicode.") from None
    except RecursionError:
        raise Invalid("The declaration is nested too deeply.") from None


def _refuse_repeated_inside(field: Field, where: str) -> None:
    """Refuses repeated inner names in declarations: no reader can open such a Delta table. Files may have them."""
    if field.kind == "record":
        parts = field.inner_fields()
        refuse_repeated([f"{where}.{part.name}" for part in parts])
        for part in parts:
            _refuse_repeated_inside(part, f"{where}.{part.name}")
    elif field.kind in ("array", "map"):
        _refuse_repeated_inside(field.element(), where)
    elif field.kind == "enum" and len(set(field.avro["symbols"])) < len(field.avro["symbols"]):
        raise Invalid(f"Column {where!r} is an enum that names a symbol twice.")


def _written(
    document: Mapping[str, Any], schema: dict[str, Any], columns: tuple[Column, ...]
) -> WrittenDefaults | None:
    refuse_misplaced(columns)
    given = document.get("written")
    defaults = WrittenDefaults() if given is None else parse_defaults(given)
    if defaults == WrittenDefaults() and not has_writing(schema):
        return None
    _refuse_too_many_formats(with_writing(columns, schema, defaults))
    return defaults


def _refuse_too_many_formats(columns: Sequence[Column]) -> None:
    """Each format of each column takes about a millisecond of every chunk, however few its rows are."""
    formats = sum(len(column.written.formats) for column in columns)
    if formats > MOST_FORMATS_OF_TABLE:
        raise Invalid(
            f"The columns have {formats:,} formats together.",
            remedy=f"Give at most {MOST_FORMATS_OF_TABLE:,}: fewer for each column.",
        )


def encoding_of(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _dialect(document: Mapping[str, Any]) -> CsvDialect:
    given = mapping("csv", document.get("csv", {}), CSV_WORDS)
    header = flag("csv.header", given.get("header", document.get("csv.first.row.as.header", True)))
    delimiter, quote = given.get("delimiter", ","), given.get("quote", '"')
    for what, value in (("delimiter", delimiter), ("quote", quote)):
        if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in "\r\n\0":
            raise Invalid(f"csv.{what} is {value!r}.", remedy="Give one ASCII character.")
    if delimiter == quote:
        raise Invalid(f"csv.delimiter and csv.quote are both {quote!r}.")
    encoding = one_of("csv.encoding", encoding_of(given.get("encoding", "utf-8")), ENCODINGS)
    null_text = text("csv.null_text", given.get("null_text", ""), least=0)
    repeated = one_of("csv.repeated_header", given.get("repeated_header", REPEATED_HEADER[0]), REPEATED_HEADER)
    skipped = int(number("csv.skip_lines", given.get("skip_lines", 0), 0, MOST_SKIPPED))
    if skipped and not header:
        raise Invalid(f"csv.skip_lines is {skipped}, and csv.header is false.", remedy="It needs a header.")
    return CsvDialect(header, delimiter, quote, null_text, encoding, repeated, skipped)


def _primary_key(given: object, columns: tuple[Column, ...]) -> tuple[str, ...]:
    if not isinstance(given, list):
        raise Invalid(f"primary_key is {given!r:.60}.", remedy="Give a list of column names.")
    # Cassandra's notation nests the partition columns: [["a", "b"], "c"].
    names = [name for part in given for name in (part if isinstance(part, list) else [part])]
    by_name = {column.name: column for column in columns}
    for name in names:
        if not isinstance(name, str):
            raise Invalid(f"primary_key holds {name!r:.60}.", remedy="Give a list of column names.")
        if name not in by_name:
            raise Invalid(
                f"primary_key names {name!r}, which is no column.", remedy=f"Columns: {', '.join(by_name)[:400]}."
            )
        if by_name[name].kind in ("record", "array", "map"):
            raise Invalid(f"primary_key names {name!r}, which is nested.", remedy="Use scalar columns.")
    if len(set(names)) != len(names):
        raise Invalid("primary_key names a column twice.")
    return tuple(names)


def _partition_key(given: object) -> tuple[str, ...]:
    """Cassandra's partition key: the first part of the primary key, which may be a list of columns."""
    first = given[0] if isinstance(given, list) and given else []
    return tuple(str(name) for name in (first if isinstance(first, list) else [first]))


def _budget(document: Mapping[str, Any]) -> Budget:
    """`on_error: stop` without other limits allows no rejected row."""
    budget = parse_budget(document)
    return replace(budget, rows=0) if not budget.has_limit and document.get("on_error") == "stop" else budget


def _keep_raw_days(given: object) -> int | None:
    return None if given is None else whole("keep_raw_days", given, 1, MOST_RAW_DAYS)


def _change_feed(given: object, columns: tuple[Column, ...]) -> bool:
    has_feed = flag("change_feed", given)
    taken = next((column.name for column in columns if column.name.lower() in COLUMNS_OF_FEED), None)
    if has_feed and taken is not None:
        raise Invalid(
            f"Column {taken!r} has the name of a column of the change feed.",
            remedy="Rename it, or leave out change_feed.",
        )
    return has_feed


def _max_file_bytes(given: object) -> int | None:
    if given is None:
        return None
    octets = int(number("max_file_size_mb", given, 0, 1e9) * (1 << 20))
    if octets < 1:
        raise Invalid(f"max_file_size_mb is {given!r}.", remedy="Give a positive number of megabytes.")
    return octets
