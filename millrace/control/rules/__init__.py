"""The rules, one module for each subject. A rule takes (state, op, append time, partition) and returns (state, effects,
result). The decorator `rule` binds it to its kind of op; there is no other list."""

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
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


# Importing a module binds its rules.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
