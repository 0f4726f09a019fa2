"""Quality rules: documents in, values out. Each rule is one test of some columns, and an action for rows that fail.

`- {name: speed, column: SPEEDIN, min: 0, max: 1e6, action: reject}`"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from millrace.model.documents import flag, listed, mapping, number, one_of, text, whole
from millrace.model.errors import Invalid
from millrace.model.names import MAX_NAME, checked_name

REJECT, FLAG, HOLD, COUNT = "reject", "flag", "hold", "count"
ACTIONS = (REJECT, FLAG, HOLD, COUNT)


@dataclass(frozen=True, slots=True)
class Rule:
    """`kind` is the test, `settings` are its parameters."""

    name: str
    kind: str
    columns: tuple[str, ...] = ()
    action: str = REJECT
    settings: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "Rule":
        return Rule(data["name"], data["kind"], tuple(data["columns"]), data["action"], data["settings"])


# The kinds of tests and their words. A rule has the words of exactly one kind.
KINDS: dict[str, tuple[str, ...]] = {
    "required": ("required",),
    "nulls": ("max_null_percent",),
    "range": ("min", "max"),
    "set": ("in",),
    "pattern": ("matches",),
    "length": ("min_length", "max_length"),
    "check": ("check",),
    "fresh": ("max_age_seconds", "max_ahead_seconds"),
    "unique": ("unique",),
    "reference": ("references",),
    "rows": ("rows",),
    "bytes": ("bytes",),
}
OF_ROWS = ("required", "range", "set", "pattern", "length", "check", "fresh")
OF_COLUMNS = ("required", "nulls", "range", "set", "pattern", "length", "fresh", "reference")
BOUND_WORDS = ("min", "max", "min_percent", "max_percent", "last")
MOST_RULES = 200
MOST_VALUES = 10_000
MOST_SECONDS = 3_200_000_000
WORDS = ("name", "column", "action", "description", *(word for words in KINDS.values() for word in words))


def parse_rules(given: object) -> tuple[Rule, ...]:
    rules = tuple(_rule(each) for each in listed("rules", given))
    if len(rules) > MOST_RULES:
        raise Invalid(f"There are {len(rules)} rules.", remedy=f"Declare at most {MOST_RULES}.")
    names = [rule.name.lower() for rule in rules]
    for rule in rules:
        if names.count(rule.name.lower()) > 1:
            raise Invalid(f"Two rules are called {rule.name!r}.", remedy="Give each a name of its own.")
    return rules


def _rule(given: object) -> Rule:
    words = mapping("a rule", given, WORDS)
    kinds = [kind for kind, own in KINDS.items() if set(own) & set(words)]
    if len(kinds) != 1:
        tests = ", ".join(word for own in KINDS.values() for word in own)
        raise Invalid(f"The rule {dict(words)!r:.80} has {len(kinds) or 'no'} tests.", remedy=f"Give one of: {tests}.")
    kind = kinds[0]
    columns = _columns(kind, words)
    text("description of a rule", words.get("description", ""), 1000, 0)
    name = checked_name("rule", words["name"]) if "name" in words else _default_name(columns, kind)
    where = f"rules.{name}"
    action = one_of(f"{where}.action", words.get("action", REJECT if kind in OF_ROWS else FLAG), ACTIONS)
    if action == REJECT and kind not in OF_ROWS:
        raise Invalid(
            f"{where} is about the whole import and cannot reject rows.", remedy=f"Choose {FLAG}, {HOLD} or {COUNT}."
        )
    return Rule(name, kind, columns, action, _READERS[kind](where, words))


def _default_name(columns: tuple[str, ...], kind: str) -> str:
    known = re.sub(r"[^A-Za-z0-9_-]", "_", "_".join([*columns, kind]))[-MAX_NAME:]
    return known if known[0].isalpha() else f"r{known[1:]}"


def _columns(kind: str, words: Mapping[str, Any]) -> tuple[str, ...]:
    if kind in OF_COLUMNS:
        return (text("column of a rule", words.get("column"), 255),)
    if "column" in words:
        raise Invalid(f"The rule {dict(words)!r:.80} needs no column.", remedy="Leave it out.")
    if kind == "unique" and words["unique"] != "key":
        names = tuple(text("unique", name, 255) for name in listed("unique", words["unique"]))
        if not names:
            raise Invalid("unique names no column.", remedy="Name columns, or write key for the primary key.")
        return names
    return ()


def _required(where: str, words: Mapping[str, Any]) -> dict[str, Any]:
    if not flag(f"{where}.required", words["required"]):
        raise Invalid(f"{where}.required is false.", remedy="Write true, or leave the rule out.")
    return {}


def _length(where: str, words: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: words[f"{name}_length"] for name in ("min", "max") if f"{name}_length" in words}
    return _not_empty(where, {name: whole(f"{where}.{name}_length", n, 0, 1 << 31) for name, n in given.items()})


def _fresh(where: str, words: Mapping[str, Any]) -> dict[str, Any]:
    return {name: whole(f"{where}.{name}", words[name], 0, MOST_SECONDS) for name in KINDS["fresh"] if name in words}


def _bound(where: str, given: object) -> int | float | str:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise Invalid(f"{where} is {given!r:.60}.", remedy="Give a number, or a moment or decimal as text.")
    return given


def _set(where: str, words: Mapping[str, Any]) -> dict[str, Any]:
    values = listed(f"{where}.in", words["in"])
    if not 1 <= len(values) <= MOST_VALUES:
        raise Invalid(f"{where}.in has {len(values)} values.", remedy=f"Give 1 to {MOST_VALUES}.")
    for value in values:
        if not isinstance(value, str | int | float | bool):
            raise Invalid(f"{where}.in holds {value!r:.40}.", remedy="Give texts, numbers or booleans.")
    return {"values": values}


def _not_empty(where: str, bounds: dict[str, Any]) -> dict[str, Any]:
    if "min" in bounds and "max" in bounds and bounds["max"] < bounds["min"]:
        raise Invalid(
            f"{where} goes from {bounds['min']} to {bounds['max']}.", remedy="Give a range that is not empty."
        )
    return bounds


def _reference(where: str, words: Mapping[str, Any]) -> dict[str, Any]:
    table, dot, column = text(f"{where}.references", words["references"]).partition(".")
    if not dot:
        raise Invalid(f"{where}.references is {table!r:.60}.", remedy="Write table.column.")
    return {"table": checked_name("table", table), "column": text(f"{where}.references", column, 255)}


def _bounds(kind: str, where: str, given: Mapping[str, Any]) -> dict[str, Any]:
    words = mapping(f"{where}.{kind}", given[kind], BOUND_WORDS)
    bounds: dict[str, Any] = {n: whole(f"{where}.{n}", words[n], 0, 1 << 62) for n in ("min", "max") if n in words}
    shares = {n: number(f"{where}.{n}", words[n], 0, 1e6) for n in ("min_percent", "max_percent") if n in words}
    if shares or "last" in words:
        shares["last"] = whole(f"{where}.last", words.get("last", 10), 1, 100)
    if not bounds and set(shares) <= {"last"}:
        raise Invalid(f"{where}.{kind} bounds nothing.", remedy="Give min, max, min_percent or max_percent.")
    return {**_not_empty(where, bounds), **shares}


_READERS: dict[str, Callable[[str, Mapping[str, Any]], dict[str, Any]]] = {
    "required": _required,
    "nulls": lambda where, words: {
        "max_percent": number(f"{where}.max_null_percent", words["max_null_percent"], 0, 100)
    },
    "range": lambda where, words: {
        name: _bound(f"{where}.{name}", words[name]) for name in KINDS["range"] if name in words
    },
    "set": _set,
    "pattern": lambda where, words: {"pattern": text(f"{where}.matches", words["matches"], 1000)},
    "length": _length,
    "check": lambda where, words: {"expression": text(f"{where}.check", words["check"], 2000)},
    "fresh": _fresh,
    "unique": lambda where, words: {},
    "reference": _reference,
    "rows": partial(_bounds, "rows"),
    "bytes": partial(_bounds, "bytes"),
}
_WRITERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "required": lambda settings: {"required": True},
    "nulls": lambda settings: {"max_null_percent": settings["max_percent"]},
    "set": lambda settings: {"in": settings["values"]},
    "pattern": lambda settings: {"matches": settings["pattern"]},
    "length": lambda settings: {f"{name}_length": length for name, length in settings.items()},
    "check": lambda settings: {"check": settings["expression"]},
    "reference": lambda settings: {"references": f"{settings['table']}.{settings['column']}"},
    "rows": lambda settings: {"rows": settings},
    "bytes": lambda settings: {"bytes": settings},
}


def rule_document(rule: Rule) -> dict[str, Any]:
    column = {"column": rule.columns[0]} if rule.kind in OF_COLUMNS else {}
    unique = {"unique": list(rule.columns) or "key"} if rule.kind == "unique" else {}
    test = _WRITERS.get(rule.kind, dict)(rule.settings)
    return {"name": rule.name, **column, **unique, **test, "action": rule.action}
