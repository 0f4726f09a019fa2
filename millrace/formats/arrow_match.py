"""Whether values of an Arrow type can be stored in a declared field. Missing inner fields are judged row by row, not here."""

import pyarrow as pa
import pyarrow.types as pat

from millrace.arrow.types import arrow_of
from millrace.model.fields import Field, assigned
from millrace.model.stored_types import stored_type


def suits(given: pa.DataType, field: Field) -> bool:
    if field.kind == "record":
        return pat.is_struct(given) and _fields_suit(given, field)
    if field.kind == "array":
        return is_list(given) and suits(given.value_type, field.element())
    if field.kind == "map":
        return pat.is_map(given) and suits(given.item_type, field.element())
    try:
        pa.array([], given).cast(arrow_of(stored_type(field.avro, field.name)))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return True


def is_list(given: pa.DataType) -> bool:
    return bool(pat.is_list(given) or pat.is_large_list(given) or pat.is_fixed_size_list(given))


def _fields_suit(given: pa.StructType, field: Field) -> bool:
    parts = field.inner_fields()
    names = assigned((inner.name for inner in given), parts)
    return all(suits(given.field(names[part.name]).type, part) for part in parts if part.name in names)
