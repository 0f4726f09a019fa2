"""A draft in, the same draft with names out that every reader of a table takes. Files keep theirs: a column has them as its
header, a field inside a column as an alias."""

from dataclasses import replace
from typing import Any

from millrace.infer.draft import Draft
from millrace.model.column_names import is_safe, plain_names
from millrace.model.columns import Column
from millrace.model.stored_types import Avro, stored_type


def plainly_named(draft: Draft) -> Draft:
    names = [column.name for column in draft.columns]
    plain = {name: name if is_safe(name) else other for name, other in zip(names, plain_names(names), strict=True)}
    columns = tuple(_renamed(column, plain[column.name]) for column in draft.columns)
    return replace(draft, columns=columns, key=tuple(plain[name] for name in draft.key))


def _renamed(column: Column, name: str) -> Column:
    header = column.header if name == column.name else column.name
    avro = _plain_inside(column.avro)
    return replace(column, name=name, header=header, avro=avro, stored=stored_type(avro, name))


def _plain_inside(avro: Avro) -> Avro:
    if isinstance(avro, list):
        return [_plain_inside(branch) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    changed = {word: _plain_inside(avro[word]) for word in ("type", "items", "values") if word in avro}
    if avro.get("type") == "record":
        names = [field["name"] for field in avro["fields"]]
        pairs = zip(avro["fields"], plain_names(names), strict=True)
        changed["fields"] = [_plain_field(field, name) for field, name in pairs]
    return {**avro, **changed}


def _plain_field(field: dict[str, Any], name: str) -> dict[str, Any]:
    field = {**field, "type": _plain_inside(field["type"])}
    if is_safe(field["name"]):
        return field
    return {**field, "name": name, "aliases": [field["name"], *field.get("aliases", ())]}
