"""The rules by what they are about. Each takes (state, op, append time, partition) and gives (state, effects, result).

`rule` binds a rule to its kind of op; nothing else lists the two."""

from collections.abc import Callable
from typing import Any, TypeVar

from millrace.control.state import State, Step
from millrace.model.ops import Op

AnyOp = TypeVar("AnyOp", bound=Op[Any])
Rule = Callable[[State, AnyOp, int, int], Step]
RULES: dict[type[Op[Any]], Rule[Any]] = {}


def rule(kind: type[AnyOp]) -> Callable[[Rule[AnyOp]], Rule[AnyOp]]:
    def bind(function: Rule[AnyOp]) -> Rule[AnyOp]:
        assert kind not in RULES, f"{kind.__name__} has a rule already"
        RULES[kind] = function
        return function

    return bind
