"""Dataclasses to dictionaries and back, for ops and their results. Field types are checked; unknown fields are ignored.

A field at its default is left out, unless it says `always`. Field metadata: `wire` is the name in the dictionary."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from millrace.model.errors import Corrupt

T = TypeVar("T")
Reader = Callable[[Any], Any]


# Marks a field with one value only: it tells this result from others.
ALWAYS = {"always": True}


def wire(name: str) -> dict[str, str]:
    """Marks a field whose name in the log is not its name in the code."""
    return {"wire": name}


class _Part:
    """One field: how to find it in a dictionary and how to read it."""

    def __init__(self, declared: "Field[Any]", annotation: Any) -> None:
        self.name = declared.name
        self.wire = declared.metadata.get("wire", declared.name)
        self.read = _reader(annotation)
        self.is_constant = not declared.init
        self.is_written = "always" in declared.metadata
        factory = declared.default_factory
        self.default = factory() if factory is not MISSING else declared.default
        self.is_nested = is_dataclass(annotation)


_KNOWN: dict[tuple[type, tuple[str, ...]], tuple[_Part, ...]] = {}


def _parts(cls: type, skipped: tuple[str, ...]) -> tuple[_Part, ...]:
    found = _KNOWN.get((cls, skipped))
    if found is None:
        hints = get_type_hints(cls)
        found = tuple(_Part(one, hints[one.name]) for one in fields(cls) if one.name not in skipped)
        _KNOWN[cls, skipped] = found
    return found


def encode(value: object, skipped: tuple[str, ...] = ()) -> dict[str, Any]:
    made = {}
    for part in _parts(type(value), skipped):
        given = getattr(value, part.name)
        if part.is_written or part.default is MISSING or given != part.default:
            made[part.wire] = encode_all(given) if part.is_nested else given
    return made


def encode_all(value: object) -> dict[str, Any]:
    """Every field: older readers expect nested values whole."""
    return {part.wire: getattr(value, part.name) for part in _parts(type(value), ())}


def decode(cls: type[T], data: Mapping[str, Any], skipped: Mapping[str, Any] = {}) -> T:
    """`skipped` holds the fields that are not in `data`. Raises Corrupt for a missing field or a value of another type."""
    given = dict(skipped)
    for part in _parts(cls, tuple(skipped)):
        value = data.get(part.wire, MISSING)
        if part.is_constant:
            if value != part.default:
                raise Corrupt(f"{part.wire} of {cls.__name__} is not {part.default}.")
        elif value is not MISSING:
            try:
                given[part.name] = part.read(value)
            except TypeError as error:
                raise Corrupt(f"{part.wire} of {cls.__name__} cannot be {value!r:.60}.") from error
        elif part.default is MISSING:
            raise Corrupt(f"{cls.__name__} has no {part.wire}.")
    return cls(**given)


def _reader(annotation: Any) -> Reader:
    """Raises TypeError for what is not of the type."""
    if annotation is Any:
        return lambda value: value
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        [inner] = (_reader(one) for one in arguments if one is not NoneType)
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        return _reader_of_tuple(arguments)
    if origin is dict:
        return _reader_of_dict(arguments[1])
    if is_dataclass(annotation) and isinstance(annotation, type):
        return lambda value: decode(annotation, _exactly(dict, value))
    accepted = (int, float) if annotation is float else (annotation,)

    def read(value: Any) -> Any:
        if type(value) in accepted:
            return value
        raise TypeError(value)

    return read


def _reader_of_dict(values: Any) -> Reader:
    if values is Any:
        return lambda value: _exactly(dict, value)
    read = _reader(values)
    return lambda value: {_exactly(str, name): read(one) for name, one in _exactly(dict, value).items()}


def _reader_of_tuple(items: tuple[Any, ...]) -> Reader:
    if items[1:] == (...,):
        read_all = _reader(items[0])
        return lambda value: tuple(map(read_all, _sequence(value)))
    readers = tuple(_reader(item) for item in items)

    def read(value: Any) -> tuple[Any, ...]:
        if len(_sequence(value)) != len(readers):
            raise TypeError(value)
        return tuple(reader(one) for reader, one in zip(readers, value, strict=True))

    return read


def _exactly(kind: type[T], value: object) -> T:
    if type(value) is not kind:
        raise TypeError(value)
    return value


def _sequence(value: Any) -> Any:
    if type(value) not in (list, tuple):
        raise TypeError(value)
    return value
