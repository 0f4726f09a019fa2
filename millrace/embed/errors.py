"""What can go wrong with the services Millrace starts itself; every message names the remedy.

EmbedError · JavaMissing · JarsUnresolved · ChildFailed(name, log)
"""

from pathlib import Path


class EmbedError(Exception):
    """A service of this machine cannot be provided."""


class JavaMissing(EmbedError):
    """No Java of a supported version was found."""


class JarsUnresolved(EmbedError):
    """Ivy could not bring the jars of one set."""


class ChildFailed(EmbedError):
    """A child process died, did not get ready in time, or used up its restarts."""

    def __init__(self, name: str, problem: str, log: Path) -> None:
        super().__init__(f"{name} {problem}; its log is {log}")
        self.name = name
        self.log = log
