"""Schema rules are pure and slow, and schedules ask them the same few questions: their answers are remembered."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from millrace.control.rules import tables
from millrace.model.errors import Clash
from millrace.model.evolution import check as real_check
from millrace.model.table import Definition, TableDeclaration
from millrace.model.table import define as real_define

_declarations: dict[str, TableDeclaration] = {}
_definitions: dict[tuple[Any, ...], Definition] = {}
# With what was compared, so that no other object can take its identity.
_answers: dict[tuple[int, ...], tuple[Clash | None, Any]] = {}
MOST_REMEMBERED = 5_000


@contextmanager
def remembered() -> Iterator[None]:
    with ExitStack() as stack:
        for name, quick in (("TableDeclaration", _Declarations), ("make_definition", _define), ("check", _check)):
            stack.enter_context(patch.object(tables, name, quick))
        yield


class _Declarations:
    """One declaration, one object: its identity stands for it below."""

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> TableDeclaration:
        key = repr(data)
        if key not in _declarations:
            _declarations[key] = TableDeclaration.from_dict(data)
        return _declarations[key]


def _define(tenant: str, table: TableDeclaration, *lineage: Any, **more: Any) -> Definition:
    key = (tenant, id(table), lineage, *more.items())
    if key not in _definitions:
        if len(_definitions) > MOST_REMEMBERED:
            _definitions.clear()
        _definitions[key] = real_define(tenant, table, *lineage, **more)
    return _definitions[key]


def _check(before: Definition, history: Sequence[Definition], after: TableDeclaration) -> None:
    earlier = (id(one.table) for one in history if one.generation == before.generation)
    key = (id(before.table), id(after), *earlier)
    if key not in _answers:
        if len(_answers) > MOST_REMEMBERED:
            _answers.clear()
        _answers[key] = _refusal(lambda: real_check(before, history, after)), (before, history, after)
    answer, _ = _answers[key]
    if answer is not None:
        raise Clash(answer.message, remedy=answer.remedy, code=answer.code)


def _refusal(ask: Callable[[], object]) -> Clash | None:
    try:
        ask()
    except Clash as clash:
        return clash
    return None
