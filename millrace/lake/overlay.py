"""A mapping that follows from another one by a few changes: a change costs what it changes, not what the mapping holds."""

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Generic, Self, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

# Each change copies the changes since the base was made. They are few, also if the base is large.
MOST_CHANGES = 4096
LEAST_CHANGES = 64


class Overlay(Mapping[Key, Value], Generic[Key, Value]):
    """A base and the changes to it. It never changes, and it shares its base with what follows from it."""

    __slots__ = ("_parts", "_size")

    def __init__(self, base: Mapping[Key, Value] | None = None) -> None:
        self._parts: tuple[Mapping[Key, Value], dict[Key, Value | None]] = ({} if base is None else base, {})
        self._size = len(self._parts[0])

    def changed(self, new: Mapping[Key, Value], gone: Iterable[Key] = ()) -> Self:
        """The mapping without `gone` and with `new`, which goes before."""
        size, (base, known) = self._size, self._parts
        changes = dict(known)
        for key in {key for key in gone if key in self}:
            size -= 1
            if key in base:
                changes[key] = None
            else:
                del changes[key]
        size += sum(changes.get(key) is None and (key in changes or key not in base) for key in new)
        changes.update(new)
        following = type(self)(base)
        following._parts, following._size = (base, changes), size
        if len(changes) > max(LEAST_CHANGES, min(MOST_CHANGES, len(base) // 4)):
            following._merge()
        return following

    def __getitem__(self, key: Key) -> Value:
        base, changes = self._parts
        if key not in changes:
            return base[key]
        value = changes[key]
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        base, changes = self._parts
        return changes[key] is not None if key in changes else key in base

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Key]:
        return iter(self._merge())

    # Whoever looks at everything gets it from one mapping, as fast as that is.

    def keys(self) -> KeysView[Key]:
        return self._merge().keys()

    def values(self) -> ValuesView[Value]:
        return self._merge().values()

    def items(self) -> ItemsView[Key, Value]:
        return self._merge().items()

    def _merge(self) -> Mapping[Key, Value]:
        base, changes = self._parts
        if changes:
            base = self._merged(base, changes)
            # In one step: another thread may be reading.
            self._parts = base, {}
        return base

    def _merged(self, base: Mapping[Key, Value], changes: Mapping[Key, Value | None]) -> Mapping[Key, Value]:
        whole = dict(base)
        for key, value in changes.items():
            if value is None:
                whole.pop(key, None)
            else:
                whole[key] = value
        return whole
