"""What a check found: how many comparisons it made, how many failed, and the smallest witnesses of those."""

from dataclasses import dataclass, field

import polars as pl

WITNESSES = 5


@dataclass
class Findings:
    """Green only when something was compared and nothing was violated. `note` says what could not be shown."""

    check: str
    promise: str
    comparisons: int = 0
    violations: int = 0
    witnesses: list[str] = field(default_factory=list)
    note: str = ""

    @property
    def is_green(self) -> bool:
        return self.comparisons > 0 and self.violations == 0

    def that(self, holds: bool, witness: str) -> None:
        """One comparison."""
        self.comparisons += 1
        if not holds:
            self._violated(1, witness)

    def none_of(self, bad: pl.DataFrame, compared: int, what: str) -> None:
        """So many comparisons, of which the rows of `bad` failed."""
        self.comparisons += compared
        for place, row in enumerate(bad.head(WITNESSES).iter_rows(named=True)):
            shown = ", ".join(f"{name}={value}" for name, value in row.items())
            self._violated(0 if place else bad.height, f"{what}: {shown}")

    def _violated(self, times: int, witness: str) -> None:
        self.violations += times
        if len(self.witnesses) < WITNESSES:
            self.witnesses.append(witness)
