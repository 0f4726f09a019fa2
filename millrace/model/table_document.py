"""A table's declaration in, its document out: in the native form, without defaults."""

from dataclasses import asdict
from typing import Any

from millrace.model.agreement_document import target_document
from millrace.model.rules import rule_document
from millrace.model.table import CsvDialect, TableDeclaration

_MEGABYTE = 1 << 20
_HEADED = CsvDialect(header=True)
_POLICIES = ("unknown_fields", "deletion_vectors", "key_space", "concurrency", "on_error", "publish", "compatibility")


def table_document_of(table: TableDeclaration) -> dict[str, Any]:
    """`parse_table(table_document_of(t))` is `t` again."""
    plain = TableDeclaration(table.name, table.schema)
    document: dict[str, Any] = {"table": table.name}
    if table.title != table.name:
        document["name"] = table.title
    document["file_type"] = table.file_type
    if table.csv != _HEADED:
        document["csv"] = {name: value for name, value in asdict(table.csv).items() if value != getattr(_HEADED, name)}
    document |= {"schema": table.schema, "primary_key": _key(table)}
    if table.max_file_bytes is not None:
        document["max_file_size_mb"] = _megabytes(table.max_file_bytes)
    document |= {name: getattr(table, name) for name in _POLICIES if getattr(table, name) != getattr(plain, name)}
    document |= _budget(table)
    document["sinks"] = [target_document(target) for target in table.targets]
    if table.rules:
        document["rules"] = [rule_document(rule) for rule in table.rules]
    return document


def _key(table: TableDeclaration) -> list[Any]:
    first = list(table.partition_key)
    if len(first) <= 1:
        return list(table.primary_key)
    return [first, *table.primary_key[len(first) :]]


def _megabytes(octets: int) -> int | float:
    return octets // _MEGABYTE if octets % _MEGABYTE == 0 else octets / _MEGABYTE


def _budget(table: TableDeclaration) -> dict[str, Any]:
    words = {
        "max_rejected": table.budget.rows,
        "max_rejected_percent": table.budget.percent,
        "max_rejected_min_rows": None if table.budget.min_rows == 1000 else table.budget.min_rows,
    }
    return {word: value for word, value in words.items() if value is not None}
