"""An error budget: how many rejected rows an import may have, and what happens to one that has more."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from millrace.model.documents import number, one_of

STOP, HOLD = ON_BUDGET = ("stop", "hold")
USUAL_MIN_ROWS = 1000
BUDGET_WORDS = ("max_rejected", "max_rejected_percent", "max_rejected_min_rows", "on_budget")
# The rule that a report names when the budget holds an import.
BUDGET_RULE = "error_budget"


@dataclass(frozen=True, slots=True)
class Budget:
    """The percentage counts only after `min_rows` rows. `on_budget`: None if nobody said it; then the import is stopped."""

    rows: int | None = None
    percent: float | None = None
    min_rows: int = USUAL_MIN_ROWS
    on_budget: str | None = field(default=None, metadata={"later": True})

    @property
    def has_limit(self) -> bool:
        return self.rows is not None or self.percent is not None

    @property
    def holds(self) -> bool:
        return self.on_budget == HOLD

    def is_blown(self, read: int, rejected: int, *, at_the_end: bool = False) -> bool:
        if self.rows is not None and rejected > self.rows:
            return True
        enough = at_the_end or read >= self.min_rows
        return self.percent is not None and enough and rejected * 100 > read * self.percent

    def to_dict(self) -> dict[str, Any]:
        """Without what nobody said: definitions from before `on_budget` existed must keep their fingerprints."""
        values = asdict(self)
        if self.on_budget is None:
            del values["on_budget"]
        return values

    def to_document(self) -> dict[str, Any]:
        """The words of a table's document or of an agreement."""
        words = {
            "max_rejected": self.rows,
            "max_rejected_percent": self.percent,
            "max_rejected_min_rows": None if self.min_rows == USUAL_MIN_ROWS else self.min_rows,
            "on_budget": self.on_budget,
        }
        return {word: value for word, value in words.items() if value is not None}


NO_BUDGET = Budget()


def parse_budget(document: Mapping[str, Any]) -> Budget:
    rows, percent, action = (document.get(word) for word in ("max_rejected", "max_rejected_percent", "on_budget"))
    least = document.get("max_rejected_min_rows", USUAL_MIN_ROWS)
    return Budget(
        None if rows is None else int(number("max_rejected", rows, 0, 1e15)),
        None if percent is None else number("max_rejected_percent", percent, 0, 100),
        int(number("max_rejected_min_rows", least, 0, 1e15)),
        None if action is None else one_of("on_budget", action, ON_BUDGET),
    )


def budget_in_force(own: Budget, agreed: Budget) -> Budget:
    """The table's limits, else the agreement's; the action that the table names, else the agreement's."""
    limits = own if own.has_limit else agreed
    return replace(limits, on_budget=own.on_budget or agreed.on_budget)
