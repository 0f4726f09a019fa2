"""What every command gets: the platform to speak to, and how to answer."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from millrace.client import Millrace

EXIT_FAILED, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 3, 130


class CommandSession(typer.Context):
    """The context of a command that runs. The global options are those of its topmost group."""

    @property
    def home(self) -> Path | None:
        """None: MILLRACE_URL, else MILLRACE_HOME, else the default home."""
        home: Path | None = self.find_root().params["home"]
        return home

    @property
    def json(self) -> bool:
        """Whether answers are for programs."""
        return bool(self.find_root().params["json"])

    @cached_property
    def platform(self) -> "Millrace":
        """The connection is made at first use and closed with the command."""
        # The HTTP client takes longer to import than help takes to print.
        from millrace.client import Millrace  # noqa: PLC0415

        return self.with_resource(Millrace.from_home(self.home))
