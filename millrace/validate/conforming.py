"""Nested Arrow values with the writer's fields in, with the declared fields out: by name or former name, with defaults.

Types of leaves do not change. The later cast reports a missing field without a default."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from millrace.arrow.types import arrow_of
from millrace.formats.arrow_match import is_list
from millrace.model.defaults import stored_default
from millrace.model.fields import Field, assigned
from millrace.model.stored_types import stored_type


def conformed(array: pa.Array, field: Field) -> pa.Array:
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
