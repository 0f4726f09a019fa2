"""Finds faults inside nested Arrow values that already have the right type: missing values, invalid text, unknown symbols,
dates and times out of range."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.model.columns import column_of
from millrace.model.stored_types import Avro
from millrace.validate.cells import typed_cells
from millrace.validate.encoded import is_encoded, typed_integers
from millrace.validate.faults import RowFault, Rows, indices
from millrace.validate.json_values import unwrapped
from millrace.validate.text import meaning


def broken_inside(name: str, avro: Avro, array: pa.Array) -> list[RowFault]:
    """The faults below the top level of column `name`. Their rows are positions in the array."""
    return [
        RowFault(fault.rows, name, fault.rule, _placed(fault), fault.values)
        for fault in _inside(avro, array, np.arange(len(array), dtype=np.int64), "")
    ]


def _placed(fault: RowFault) -> pa.Array:
    return pc.binary_join_element_wise(fault.column or "", fault.messages, " ")


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
        empty = rows[indices(pc.is_null(array))]
        messages = pa.repeat(pa.scalar("is required and has no value"), len(empty))
        faults.append(RowFault(empty, where, "required", messages, pa.nulls(len(empty), pa.string())))
    return faults + _inside(inner, array, rows, where)


def _in_leaf(avro: Avro, array: pa.Array, rows: Rows, where: str) -> list[RowFault]:
    leaf = column_of(where, avro, nullable=True)
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        faults = typed_cells(leaf, array.view(pa.binary()), clean=False, has_nul=True)[1]
    elif is_encoded(name := meaning(leaf)):
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
