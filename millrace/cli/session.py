"""What every command is told: where the platform's home is, and how to speak."""

from dataclasses import dataclass
from pathlib import Path

EXIT_FAILED, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 3, 130


@dataclass(frozen=True, slots=True)
class Session:
    """No home: MILLRACE_URL, else MILLRACE_HOME, else the default home."""

    home: Path | None
    json: bool
