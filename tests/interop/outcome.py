"""What became of one operation on one table, and whether it had to become that."""

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from millrace.model.errors import MillraceError
from millrace.model.sinks import SinkFailed
from tests.interop.known import ACCEPTED, FAULTS, Fault

TAKEN, REFUSED_BY_WRITER, PARKED, FAILED = "taken", "refused by the writer", "parked", "failed"
# Parked, with a remedy that helped.
RESUMED = "resumed"
ALONE = "Millrace alone"
MOST_WORDS = 300
_RANDOM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{16,}\b")


@dataclass
class Cell:
    """`words` is the refusal, `intended` the outcome that is right. `readers` has by reader what it read wrongly: nothing if
    every version was as the model says, or differs from it by a known fault of that reader."""

    writer: str
    operation: str
    shape: str
    mode: str
    outcome: str = TAKEN
    words: str = ""
    versions: int = 0
    readers: dict[str, str] = field(default_factory=dict)
    intended: str = TAKEN

    @property
    def name(self) -> str:
        return f"{self.writer} {self.operation}, {self.shape}, {self.mode}"

    @property
    def is_sound(self) -> bool:
        is_expected = self.outcome == self.intended or (self.outcome, self.name) in ACCEPTED
        return is_expected and not any(self.readers.values())

    def fault(self, reader: str) -> Fault | None:
        return FAULTS.get((self.writer, reader))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def judged(error: Exception) -> tuple[str, str]:
    """A refusal is in words of ours, with what to do. An error of a library is a failure of ours."""
    cause = error.__cause__ if isinstance(error, SinkFailed) else error
    if isinstance(error, SinkFailed) and cause is None:
        cause = error
    if isinstance(cause, MillraceError) and cause.remedy:
        return PARKED, f"{cause.message} {cause.remedy}"
    return FAILED, f"{type(cause).__name__}: {cause}"


def brief(text: str, place: Path) -> str:
    """The first sentence or so, on one line, without what is another one in every run."""
    said = text.partition("JVM stacktrace")[0].replace(str(place), "")
    return _RANDOM.sub("…", " ".join(said.split()))[:MOST_WORDS]
