"""What the world asks of a control store, and the one that is made of dictionaries."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from millrace.control.state import Announce, Close, Send, State, StoreDefinition
from millrace.model.facts import Fact
from millrace.model.imports import Import
from millrace.model.ops import Applied, Op
from simulate.content import Row
from simulate.memory import Memory, MemoryTransaction


class Transaction(Protocol):
    """Nobody sees any of it before it is committed."""

    def load(self, op: Op[Any]) -> State: ...
    def save(self, before: State, after: State, at_us: int) -> None: ...
    def keep(self, number: int, op: Op[Any], effect: Announce | Close | StoreDefinition | Send, at_us: int) -> None: ...
    def answered(self, asked: Op[Any], answer: Applied) -> None: ...
    def fold(self, facts: Iterable[Fact]) -> dict[str, Import]: ...
    def advance(self, log: str, before: Mapping[int, int], after: Mapping[int, int]) -> None: ...
    def mark(self, import_id: str, markers: dict[str, int]) -> None: ...
    def forget(self, chunks: Iterable[tuple[str, int]], events: int) -> None: ...


class Store(Protocol):
    def read(self) -> Memory: ...
    def begin(self) -> Transaction: ...
    def commit(self, transaction: Any) -> None: ...
    def backup(self) -> Any: ...
    def restore(self, backup: Any) -> None: ...


class MemoryStore:
    """A commit puts a new memory in the place of the old one, which stays as it was."""

    def __init__(self, contents: Mapping[bytes, tuple[Row, ...]]) -> None:
        self._now = Memory()
        self._contents = contents

    def read(self) -> Memory:
        return self._now

    def begin(self) -> MemoryTransaction:
        return MemoryTransaction(self._now.fork(), self._contents)

    def commit(self, transaction: MemoryTransaction) -> None:
        self._now = transaction.store

    def backup(self) -> Memory:
        return self._now

    def restore(self, backup: Memory) -> None:
        self._now = backup
