"""Whether rows of a writer's Avro schema can become rows of the table. Refuses by column; the judge checks nested types."""

from typing import Any

from millrace.formats.avro_types import alone, field_type, fields_of, held_type, is_decimal
from millrace.formats.matching import readable_columns, refuse_mismatch
from millrace.formats.pieces import UploadOptions
from millrace.model.columns import Column
from millrace.model.errors import Invalid
from millrace.model.fields import assigned
from millrace.model.table import Definition

_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_PROMOTIONS = {
    "int": {"int", "long", "float", "double"},
    "long": {"long", "float", "double"},
    "float": {"float", "double"},
    "string": {"string", "bytes"},
    "bytes": {"string", "bytes"},
}


def refuse_unresolvable(schema: dict[str, Any], definition: Definition, options: UploadOptions) -> None:
    fields = {str(field.get("name")): field.get("type") for field in schema["fields"] if isinstance(field, dict)}
    where = f"{options.what}: its Avro schema"
    refuse_mismatch(list(fields), definition, where, deletes=options.deletes)
    columns = readable_columns(definition, deletes=options.deletes)
    names = assigned(fields, columns)
    for column in columns:
        if column.name in names and not _resolvable(fields[names[column.name]], column):
            avro = fields[names[column.name]]
            written = "decimal" if is_decimal(alone(avro)) else ", ".join(sorted(_kinds(avro)))
            raise Invalid(
                f"{where} writes column {column.name!r} as {written}, the table has {column.kind}.",
                remedy="Write it with the table's type, or one that Avro can promote to it.",
            )
    _refuse_unreadable(schema, set(names.values()), where)


def _refuse_unreadable(schema: dict[str, Any], names: set[str], where: str) -> None:
    try:
        for field in fields_of(schema):
            if field["name"] in names:
                held_type(field_type(field), field["name"])
    except Invalid as refused:
        raise Invalid(f"{where} cannot be read. {refused.message}", remedy=refused.remedy) from refused
    except Exception as error:  # fastavro raises many kinds of exceptions for a wrong schema.
        reason = str(error) or type(error).__name__
        remedy = "Write the file again with a valid schema."
        raise Invalid(f"{where} is not valid: {reason:.200}", remedy=remedy) from error


def _resolvable(avro: Any, column: Column) -> bool:
    """Whether at least one value of the written type is a value of the column's type."""
    if is_decimal(alone(avro)) and column.kind in ("bytes", "fixed") and column.logical is None:
        return False
    return any(
        (kind == "null" and column.nullable)
        or kind not in _PRIMITIVES | {"record", "enum", "fixed", "array", "map"}
        or column.kind in _PROMOTIONS.get(kind, {kind})
        for kind in _kinds(avro)
    )


def _kinds(avro: Any) -> set[str]:
    if isinstance(avro, list):
        return set().union(*(_kinds(branch) for branch in avro))
    return _kinds(avro["type"]) if isinstance(avro, dict) and "type" in avro else {str(avro)}
