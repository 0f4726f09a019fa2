"""Dataclasses to dictionaries and back, for ops and their results. Field types are checked; unknown fields are ignored.

A field at its default is left out, unless it is marked ALWAYS."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from millrace.model.errors import Corrupt

T = TypeVar("T")
Reader = Callable[[Any], Any]

# Marks a field with one value only: it tells this result from others.
ALWAYS = {"always": True}
# Marks a field that stands beside the dictionary, not in it.
BESIDE = {"beside": True}


def wire(name: str) -> dict[str, str]:
    """Marks a field whose name in the log is not its name in the code."""
    return {"wire": name}


class _WireField(NamedTuple):
    """One field. A value of one of the `types` is taken as it is; `read` converts others, or raises TypeError."""

    name: str
    wire: str
    types: tuple[type, ...]
    read: Reader
    default: Any
    is_constant: bool
    is_nested: bool
    is_later: bool


_PARTS: dict[type, tuple[_WireField, ...]] = {}


def _parts(cls: type) -> tuple[_WireField, ...]:
    known = _PARTS.get(cls)
    if known is None:
        hints = get_type_hints(cls)
        inside = (one for one in fields(cls) if "beside" not in one.metadata)
        known = _PARTS[cls] = tuple(_part(one, hints[one.name]) for one in inside)
    return known


def _part(declared: "Field[Any]", annotation: Any) -> _WireField:
    factory, constant = declared.default_factory, "always" in declared.metadata
    default = factory() if factory is not MISSING else declared.default
    name, nested = declared.metadata.get("wire", declared.name), is_dataclass(annotation)
    later = "later" in declared.metadata
    return _WireField(declared.name, name, *_accepted(annotation), default, constant, nested, later)


def encode(value: object) -> dict[str, Any]:
    made = {}
    for part in _parts(type(value)):
        given = getattr(value, part.name)
        if part.default is MISSING or part.is_constant or given != part.default:
            made[part.wire] = _encode_whole(given) if part.is_nested else given
    return made


def _encode_whole(value: object) -> dict[str, Any]:
    """Older readers expect every field of a nested value, but those that came later."""
    found = ((one, getattr(value, one.name)) for one in _parts(type(value)))
    return {one.wire: given for one, given in found if not one.is_later or given != one.default}


def decode(cls: type[T], data: Mapping[str, Any], beside: Mapping[str, Any] = {}) -> T:
    """Raises Corrupt for a missing field or a value of another type."""
    given = dict(beside)
    for name, key, types, read, default, is_constant, *_ in _parts(cls):
        value = data.get(key, MISSING)
        if is_constant:
            if value != default:
                raise Corrupt(f"{key} of {cls.__name__} is not {default}.")
        elif type(value) in types:
            given[name] = value
        elif value is not MISSING:
            try:
                given[name] = read(value)
            except TypeError as error:
                raise Corrupt(f"{key} of {cls.__name__} cannot be {value!r:.60}.") from error
        elif default is MISSING:
            raise Corrupt(f"{cls.__name__} has no {key}.")
    return cls(**given)


def _accepted(annotation: Any) -> tuple[tuple[type, ...], Reader]:
    """The types of values that are taken as they are, and what to do with all others."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        [(types, read)] = (_accepted(one) for one in arguments if one is not NoneType)
        return (*types, NoneType), read
    if origin is tuple:
        return (), _tuple_reader(arguments)
    if origin is dict and arguments[1] is not Any:
        return (), _dict_reader(_reader(arguments[1]))
    if is_dataclass(annotation) and isinstance(annotation, type):
        return (), lambda value: decode(annotation, _exactly((dict,), value))
    types = (int, float) if annotation is float else (origin or annotation,)
    return types, lambda value: _exactly(types, value)


def _reader(annotation: Any) -> Reader:
    types, read = _accepted(annotation)
    return lambda value: value if type(value) in types else read(value)


def _dict_reader(read: Reader) -> Reader:
    return lambda value: {_exactly((str,), name): read(one) for name, one in _exactly((dict,), value).items()}


def _tuple_reader(items: tuple[Any, ...]) -> Reader:
    readers = [_reader(item) for item in items if item is not ...]
    is_open = items[-1] is ...

    def read(value: Any) -> tuple[Any, ...]:
        given = _exactly((list, tuple), value)
        if not is_open and len(given) != len(readers):
            raise TypeError(value)
        return (
            tuple(map(readers[0], given)) if is_open else tuple(r(one) for r, one in zip(readers, given, strict=True))
        )

    return read


def _exactly(types: tuple[type, ...], value: Any) -> Any:
    if type(value) in types:
        return value
    raise TypeError(value)
