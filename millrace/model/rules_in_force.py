"""The agreement's rules and the table's rules in, the rules in force out.

A table may only tighten what its tenant agreed to: its rule of the same name must let through no more."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from millrace.model.errors import Clash
from millrace.model.rules import COUNT, FLAG, HOLD, REJECT, Rule

# What happens to rows that break a rule, the milder before the stricter.
_STRICTNESS = {COUNT: 0, FLAG: 1, HOLD: 2, REJECT: 3}


def in_force(agreed: Sequence[Rule], own: Sequence[Rule]) -> tuple[Rule, ...]:
    """The table's rules, and the agreement's that none of them tightens. If two share a name, the agreed one is renamed."""
    tighter = {rule.name: rule for rule in own}
    kept = [rule for rule in agreed if rule.name not in tighter or not is_tighter(tighter[rule.name], rule)]
    named = [replace(rule, name=f"agreed-{rule.name}"[:63]) if rule.name in tighter else rule for rule in kept]
    return (*named, *own)


def refuse_looser(agreed: Sequence[Rule], own: Sequence[Rule]) -> None:
    """Refuses a rule that is looser than the agreement's rule of the same name."""
    by_name = {rule.name: rule for rule in agreed}
    for rule in own:
        if rule.name in by_name and not is_tighter(rule, by_name[rule.name]):
            raise Clash(
                f"Rule {rule.name!r} lets more through than the agreement's of the same name.",
                remedy="Tighten it, or give it another name: then both are in force.",
                code="looser_rule",
            )


def is_tighter(rule: Rule, agreed: Rule) -> bool:
    """Whether all rows that pass the rule also pass the agreed rule, and its action is not milder."""
    if (rule.kind, rule.columns) != (agreed.kind, agreed.columns):
        return False
    if _STRICTNESS[rule.action] < _STRICTNESS[agreed.action]:
        return False
    return _lets_less_through(rule.kind, rule.settings, agreed.settings)


def _lets_less_through(kind: str, own: dict[str, Any], agreed: dict[str, Any]) -> bool:
    if kind == "set":
        return {_key(value) for value in own["values"]} <= {_key(value) for value in agreed["values"]}
    if kind in ("pattern", "check", "unique", "required", "reference"):
        return own == agreed
    if own.get("last") != agreed.get("last"):
        return False
    return all(_is_within(word, own.get(word), bound) for word, bound in agreed.items() if word != "last")


def _key(value: Any) -> str:
    return json.dumps(value)


def _is_within(word: str, own: Any, agreed: Any) -> bool:
    """Bounds that are no numbers, such as dates, are within only if they are equal."""
    if own is None:
        return False
    try:
        mine, theirs = float(own), float(agreed)
    except (TypeError, ValueError):
        return bool(own == agreed)
    return mine >= theirs if word.startswith("min") else mine <= theirs
