"""What every command gets: the platform to speak to, and how to answer."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace.client import Millrace

EXIT_FAILED, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 3, 130


@dataclass(frozen=True, slots=True)
class CommandSession:
    """Without a home: MILLRACE_URL, else MILLRACE_HOME, else the default home. `json`: answers are for programs."""

    home: Path | None
    json: bool

    def connect(self) -> "Millrace":
        # The HTTP client takes longer to import than help takes to print.
        from millrace.client import Millrace  # noqa: PLC0415

        return Millrace.from_home(self.home)
