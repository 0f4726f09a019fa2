"""The quality facts of chunks in, the quality report of an import out. Values only.

A report: {rows, rules: [{name, kind, column, action, broken, of, verdict, …}], held: [names of the rules that hold it]}."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millrace.model.budget import BUDGET_RULE
from millrace.model.rules import HOLD, OF_ROWS, REJECT, Rule

MOST_SAMPLES = 100
CHUNK_SAMPLES = 20
KEPT, BROKEN, UNKNOWN = "kept", "broken", "unknown"


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the chunks of an import. `rows` counts accepted rows that do not delete."""

    rows: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    nulls: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of a whole import: rows read, bytes, and for each rule the rows that repeat a key."""

    rows: int
    octets: int
    repeated: Mapping[str, int]
    # Of the imports before, the newest first; None where this is no import of its own (rows of senders, replayed rows).
    past_rows: Sequence[int] | None = None
    past_octets: Sequence[int] | None = None
    # By rule: the number of rows that reference no row of the other table, or why it is unknown.
    lost: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def total(facts: Iterable[Mapping[str, Any]]) -> Totals:
    rows, broken, nulls = 0, Counter[str](), Counter[str]()
    samples: dict[str, list[int]] = {}
    for fact in facts:
        rows += fact["rows"]
        broken.update(fact["broken"])
        nulls.update(fact["nulls"])
        for name, numbers in fact["samples"].items():
            samples.setdefault(name, []).extend(numbers)
    return Totals(rows, broken, nulls, {name: sorted(found)[:MOST_SAMPLES] for name, found in samples.items()})


def report(rules: Sequence[Rule], totals: Totals, measured: Measured) -> dict[str, Any]:
    """Rows of senders and replayed rows are never held: whoever sends them waits for their end."""
    judged = [_judged(rule, totals, measured) for rule in rules]
    may_hold = measured.past_rows is not None
    held = [rule["name"] for rule in judged if may_hold and rule["verdict"] == BROKEN and rule["action"] == HOLD]
    return {"rows": totals.rows, "bytes": measured.octets, "rules": judged, "held": held}


def _judged(rule: Rule, totals: Totals, measured: Measured) -> dict[str, Any]:
    about = {"name": rule.name, "kind": rule.kind, "columns": list(rule.columns), "action": rule.action}
    if rule.kind in OF_ROWS:
        return {**about, **_of_rows(rule, totals, measured)}
    if measured.past_rows is None or measured.past_octets is None:
        return {**about, "verdict": UNKNOWN}
    match rule.kind:
        case "nulls":
            outcome = _nulls(rule, totals)
        case "unique":
            outcome = _counted(measured.repeated.get(rule.name, 0), totals.rows)
        case "reference":
            outcome = _reference(measured.lost.get(rule.name, {"unknown": ""}), totals)
        case "rows":
            outcome = _bounded(rule, measured.rows, measured.past_rows)
        case _:
            outcome = _bounded(rule, measured.octets, measured.past_octets)
    return {**about, **outcome}


def _counted(broken: int, of: int) -> dict[str, Any]:
    return {"broken": broken, "of": of, "verdict": BROKEN if broken else KEPT}


def _of_rows(rule: Rule, totals: Totals, measured: Measured) -> dict[str, Any]:
    of = measured.rows if rule.action == REJECT else totals.rows
    return {**_counted(totals.broken[rule.name], of), "samples": totals.samples.get(rule.name, [])}


def _reference(lost: Mapping[str, Any], totals: Totals) -> dict[str, Any]:
    if "unknown" in lost:
        return {**lost, "verdict": UNKNOWN}
    return {**_counted(lost["broken"], totals.rows), "table_version": lost["table_version"]}


def _nulls(rule: Rule, totals: Totals) -> dict[str, Any]:
    nulls = totals.nulls[rule.columns[0]]
    percent = 100 * nulls / totals.rows if totals.rows else 0.0
    verdict = BROKEN if nulls * 100 > totals.rows * rule.settings["max_percent"] else KEPT
    return {"broken": nulls, "of": totals.rows, "measured": round(percent, 3), "verdict": verdict}


def _bounded(rule: Rule, value: int, past: Sequence[int]) -> dict[str, Any]:
    """Percentages are of the mean of the last imports. Without earlier imports there is no comparison."""
    settings = rule.settings
    low, high = settings.get("min"), settings.get("max")
    shown: dict[str, Any] = {"measured": value}
    if "last" in settings and past:
        usual = sum(past[: settings["last"]]) / len(past[: settings["last"]])
        lows = [bound for bound in (low, _share(usual, settings.get("min_percent"))) if bound is not None]
        highs = [bound for bound in (high, _share(usual, settings.get("max_percent"))) if bound is not None]
        low, high = max(lows, default=None), min(highs, default=None)
        shown["usual"] = round(usual, 1)
    is_out = (low is not None and value < low) or (high is not None and value > high)
    return {**shown, "verdict": BROKEN if is_out else UNKNOWN if low is None and high is None else KEPT}


def _share(usual: float, percent: float | None) -> float | None:
    return None if percent is None else usual * percent / 100


def over_its_budget(report: Mapping[str, Any], read: int, rejected: int) -> dict[str, Any]:
    """The report of an import that its error budget holds. Added once, however often it is asked for."""
    if BUDGET_RULE in report["held"]:
        return dict(report)
    about = {"name": BUDGET_RULE, "kind": "budget", "columns": [], "action": HOLD}
    rules = [*report["rules"], {**about, **_counted(rejected, read)}]
    return {**report, "rules": rules, "held": [*report["held"], BUDGET_RULE]}


def summary(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report without samples, for events."""
    rules = [{word: value for word, value in rule.items() if word != "samples"} for rule in report["rules"]]
    return {**report, "rules": rules}


def held_because(report: Mapping[str, Any], import_id: str) -> dict[str, str]:
    names = ", ".join(report["held"])
    return {
        "code": "held",
        "message": f"Held by {'rules' if len(report['held']) > 1 else 'rule'} {names}.",
        "remedy": f"See `millrace quality {import_id}`, then release or cancel it.",
    }
