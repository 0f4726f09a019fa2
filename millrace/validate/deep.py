"""Nested Arrow values: brought into the shape of the declared fields, by name or former name and with defaults, and searched
for faults: missing values, invalid text, unknown symbols, dates and times out of range."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from millrace.arrow.types import arrow_of, is_list
from millrace.model.columns import column_of
from millrace.model.defaults import stored_default
from millrace.model.fields import Field, assigned
from millrace.model.stored_types import Avro, stored_type
from millrace.validate.cells import typed_cells
from millrace.validate.encoded import ENCODED, typed_integers
from millrace.validate.expected import meaning
from millrace.validate.faults import RowFault, Rows, indices, same
from millrace.validate.json_values import unwrapped


def conformed(array: pa.Array, field: Field) -> pa.Array:
    """The values with the declared fields. Types of leaves do not change. The later cast reports a missing field without a
    default."""
    if _conforms(array.type, field):
        return array
    # A copy, so that nothing below is a slice.
    return _conformed(array.take(pa.array(np.arange(len(array)))), field)


def _conforms(kind: pa.DataType, field: Field) -> bool:
    if field.kind == "record" and pat.is_struct(kind):
        return all(
            kind.get_field_index(part.name) >= 0 and _conforms(kind.field(part.name).type, part)
            for part in field.inner_fields()
        )
    if field.kind == "array" and is_list(kind):
        return _conforms(kind.value_type, field.element())
    return field.kind != "map" or not pat.is_map(kind) or _conforms(kind.item_type, field.element())


def _conformed(array: pa.Array, field: Field) -> pa.Array:
    if _conforms(array.type, field):
        return array
    if field.kind == "record":
        return _record(array, field)
    if field.kind == "map":
        items = _conformed(array.items, field.element())
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, mask=_mask(array))
    listed = array.cast(pa.list_(array.type.value_type))
    return pa.ListArray.from_arrays(listed.offsets, _conformed(listed.values, field.element()), mask=_mask(listed))


def _record(array: pa.Array, field: Field) -> pa.Array:
    parts = field.inner_fields()
    names = assigned((inner.name for inner in array.type), parts)
    children = {}
    for part in parts:
        if part.name in names:
            place = array.type.get_field_index(names[part.name])
            children[part.name] = _conformed(pc.struct_field(array, [place]), part)
        elif (value := stored_default(part)) is not None:
            children[part.name] = pa.repeat(pa.scalar(value, arrow_of(stored_type(part.avro, part.name))), len(array))
    if not children:
        return array
    return pa.StructArray.from_arrays(list(children.values()), list(children), mask=pc.is_null(array))


def _mask(array: pa.Array) -> pa.Array | None:
    return pc.is_null(array) if array.null_count else None


def broken_inside(name: str, avro: Avro, array: pa.Array) -> list[RowFault]:
    """The faults below the top level of column `name`. Their rows are positions in the array."""
    return [
        replace(fault, column=name, messages=pc.binary_join_element_wise(fault.column or "", fault.messages, " "))
        for fault in _inside(avro, array, np.arange(len(array), dtype=np.int64), "")
    ]


def _inside(avro: Avro, array: pa.Array, rows: Rows, where: str) -> list[RowFault]:
    kind = avro if isinstance(avro, str) else avro["type"]
    if kind == "record":
        return _in_record(avro, array, rows, where)
    if kind == "array":
        parents = pc.list_parent_indices(array).to_numpy()
        return _child(avro["items"], pc.list_flatten(array), rows[parents], f"{where}[]")
    if kind == "map":
        offsets = array.offsets.to_numpy()
        owners = rows[np.repeat(np.arange(len(array)), np.diff(offsets))]
        first, count = offsets[0], offsets[-1] - offsets[0]
        keys = _child("string", array.keys.slice(first, count), owners, f"{where}.key")
        return keys + _child(avro["values"], array.items.slice(first, count), owners, f"{where}.value")
    return _in_leaf(avro, array, rows, where)


def _in_record(avro: Avro, array: pa.Array, rows: Rows, where: str) -> list[RowFault]:
    present = indices(pc.is_valid(array))
    kept = array.take(pa.array(present))
    faults: list[RowFault] = []
    for place, field in enumerate(avro["fields"]):
        path = f"{where}.{field['name']}".lstrip(".")
        faults += _child(field["type"], pc.struct_field(kept, [place]), rows[present], path)
    return faults


def _child(avro: Avro, array: pa.Array, rows: Rows, where: str) -> list[RowFault]:
    inner, nullable = unwrapped(avro)
    faults: list[RowFault] = []
    if array.null_count and not nullable:
        faults.append(same(rows[indices(pc.is_null(array))], where, "required", "is required and has no value"))
    return faults + _inside(inner, array, rows, where)


def _in_leaf(avro: Avro, array: pa.Array, rows: Rows, where: str) -> list[RowFault]:
    leaf = column_of(where, avro, nullable=True)
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        faults = typed_cells(leaf, array.view(pa.binary()), clean=False, has_nul=True)[1]
    elif (name := meaning(leaf)) in ENCODED:
        counted_as = "timestamp-micros" if pa.types.is_timestamp(array.type) else name
        numbers = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()).cast(pa.int64())
        faults = typed_integers(leaf, numbers, counted_as)[1]
    else:
        return []
    return [fault.at(rows) for fault in faults]


def declared(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same memory with inner values required where `kind` says so. A cast would refuse this below a null. No slices."""
    if pa.types.is_struct(kind):
        children = [declared(array.field(place), kind.field(place).type) for place in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], array.null_count, 0, children)
    if pa.types.is_list(kind):
        children = [declared(array.values, kind.value_type)]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, 0, children)
    if pa.types.is_map(kind):
        items = declared(array.items, kind.item_type)
        entries = pa.StructArray.from_arrays([array.keys, items], fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, 0, [entries])
    return array
