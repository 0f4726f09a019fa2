"""Warnings about a table's document: values that are valid but likely a mistake, each with the likely intention."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from millrace.model.columns import parse_columns
from millrace.model.documents import DeclarationWarning
from millrace.model.formats import format_named
from millrace.model.rules import HOLD
from millrace.model.sinks import WITH_KEY_SPACES
from millrace.model.table import TableDeclaration
from millrace.model.written import COLUMN_WORDS

LITTLE_FILE_BYTES = 1024
_DATES = {"date": '{"type": "int", "logicalType": "date"}'}
_AVRO_WORDS = ("name", "type", "default", "aliases", "doc", "order", "logicalType", "precision", "scale")
_READ_BEFORE = (
    "holds an import whose rows can be read before it is released: the table publishes as rows come.",
    "Likely publish: atomic.",
)
_TIMES = ("timestamp-millis", "timestamp-micros", "time-millis", "time-micros")


def table_warnings(table: TableDeclaration, document: Mapping[str, Any]) -> tuple[DeclarationWarning, ...]:
    return (
        *_columns(table),
        *_words(table),
        *_sizes(table, document),
        *_policies(table, document),
        *_key_space(table),
        *_rules(table),
    )


def _columns(table: TableDeclaration) -> Iterator[DeclarationWarning]:
    for column in parse_columns(table.schema):
        given = column.avro.get("logicalType") if isinstance(column.avro, dict) else None
        if given is not None and column.logical is None:
            of_long = f'{{"type": "long", "logicalType": "{given}"}}'
            likely = _DATES.get(given) or (of_long if given in _TIMES else None)
            yield DeclarationWarning(
                f"schema.{column.name}.logicalType",
                f"is {given!r} on a {column.kind}, which Avro ignores: values are kept as {column.kind}.",
                f"Likely {likely}." if likely else "Leave it out.",
            )


def _words(table: TableDeclaration) -> Iterator[DeclarationWarning]:
    """Words of a field that nobody reads and that are almost words that somebody reads."""
    for field in table.schema["fields"]:
        for word in field:
            near = [] if word in (*_AVRO_WORDS, *COLUMN_WORDS) else get_close_matches(word, COLUMN_WORDS, 1, 0.8)
            if near:
                yield DeclarationWarning(f"schema.{field['name']}.{word}", "is ignored.", f"Likely {near[0]}.")


def _sizes(table: TableDeclaration, document: Mapping[str, Any]) -> Iterator[DeclarationWarning]:
    if table.max_file_bytes is not None and table.max_file_bytes < LITTLE_FILE_BYTES:
        message = f"is {document.get('max_file_size_mb')}: {table.max_file_bytes:,} bytes."
        yield DeclarationWarning("max_file_size_mb", message, "It counts megabytes: likely a number of 1 or more.")
    if table.budget.percent == 100:
        yield DeclarationWarning(
            "max_rejected_percent", "is 100, which never stops an import.", "Likely a smaller share."
        )


def _policies(table: TableDeclaration, document: Mapping[str, Any]) -> Iterator[DeclarationWarning]:
    found = format_named(table.file_type)
    has_dialect = found is not None and found.has_dialect
    if not has_dialect and ("csv" in document or "csv.first.row.as.header" in document):
        yield DeclarationWarning(
            "csv", f"is ignored unless a file of {table.file_type} is sent as CSV.", "Likely file_type: csv."
        )


def _key_space(table: TableDeclaration) -> Iterator[DeclarationWarning]:
    if table.key_space is not None and not any(target.kind in WITH_KEY_SPACES for target in table.targets):
        yield DeclarationWarning(
            "key_space",
            "has no effect: the table has no cassandra sink.",
            "Add sinks: [delta, {kind: cassandra, hosts: […]}], or leave it out.",
        )


def _rules(table: TableDeclaration) -> Iterator[DeclarationWarning]:
    if table.publish == "rolling":
        if table.budget.holds:
            yield DeclarationWarning("on_budget", *_READ_BEFORE)
        for rule in table.rules:
            if rule.action == HOLD:
                yield DeclarationWarning(f"rules.{rule.name}", *_READ_BEFORE)
