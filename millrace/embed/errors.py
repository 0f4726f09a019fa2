"""What can go wrong with the services Millrace starts itself; every message names the remedy.

Unavailable ── EmbedError ── JavaMissing · JarsUnresolved · ChildFailed(name, log) · PasswordMissing(account)
"""

from pathlib import Path

from millrace.model.errors import Unavailable


class EmbedError(Unavailable):
    """A service of this machine cannot be provided."""

    code = "embedded_service"


class JavaMissing(EmbedError):
    """No Java of a supported version was found."""


class JarsUnresolved(EmbedError):
    """Ivy could not bring the jars of one set."""


class ChildFailed(EmbedError):
    """A child process died, did not get ready in time, or used up its restarts."""

    def __init__(self, name: str, problem: str, log: Path) -> None:
        super().__init__(f"{name} {problem}.", remedy=f"Its log says why: {log}")
        self.name = name
        self.log = log


class PasswordMissing(EmbedError):
    """A process has no password for the broker."""

    def __init__(self, account: str, folder: Path, problem: str) -> None:
        super().__init__(
            f"There is no password of {str(account)!r} for the broker in {folder}: {problem}.",
            remedy="`millrace up` makes missing ones. In a pod, the Secret millrace-kafka holds them (docs/kubernetes.md).",
        )
        self.account = account
