"""What became of a sender's rows: counts, failures, and which rows of an import are which of the sender."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from millrace.client.documents import FaultDocument, ImportDocument, RejectedRow

MOST_FAILURES = 100

Rejected = dict[str, Any]
"""{"seq", "row", "raw", "reasons"}: `seq` counts the rows of the sender, `row` those of the import."""


@dataclass(frozen=True, slots=True)
class Summary:
    """`unheard`: durable rows whose connection broke before the platform could say in which import they are."""

    sender: str
    rows: int = 0
    accepted: int = 0
    rejected: int = 0
    ignored: int = 0
    unheard: int = 0
    appends: int = 0
    version: int | None = None
    failures: tuple[FaultDocument, ...] = ()

    def after(self, counts: Mapping[str, int], error: FaultDocument | None) -> "Summary":
        """With the rows of one more append that has ended. An append does not fail because all its rows were rejected."""
        failed = error is not None and error["code"] != "nothing_accepted"
        return replace(
            self,
            accepted=self.accepted + counts["accepted"],
            rejected=self.rejected + counts["rejected"],
            ignored=self.ignored + counts["ignored"],
            failures=(*self.failures, error)[:MOST_FAILURES] if failed and error else self.failures,
        )


@dataclass(frozen=True, slots=True)
class AppendedRows:
    """Rows first to last of the sender are the rows from `row` on of an import."""

    first: int
    last: int
    row: int

    @property
    def rows(self) -> int:
        return self.last - self.first + 1

    def holds(self, row: int) -> bool:
        return self.row <= row < self.row + self.rows

    def numbered(self, row: RejectedRow) -> Rejected:
        seq = self.first + row["row"] - self.row
        return {"seq": seq, "row": row["row"], "raw": row["raw"], "reasons": row["reasons"]}


def share_of(document: ImportDocument, place: AppendedRows, listed: int) -> dict[str, int]:
    """The sender's part of an import's counts; `listed` of its rows are in the error store."""
    if document["rows"]["ignored"]:
        return {"accepted": 0, "rejected": 0, "ignored": place.rows}
    rejected = listed if document["rows"]["accepted"] else place.rows
    return {"accepted": place.rows - rejected, "rejected": rejected, "ignored": 0}
