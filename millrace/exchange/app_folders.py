"""The folders of a tenant's client app: its input and output, and the files that the platform has taken from it.

The server puts uploads into `in`; the program reads them and writes into `out` and `log`, and sees nothing else. The
ingestion managers take its files to `handled`, where no program comes, and import them; the server shows runs and files. A
lost file that was not imported yet must be sent again."""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millrace.beneath.folder import Folder, hold
from millrace.exchange.home import Below, Home
from millrace.model.errors import Clash

PRIVATE, PASSABLE, PASSABLE_BY_GROUP, SHARED_WITH_GROUP = 0o700, 0o711, 0o750, 0o2770


@dataclass(frozen=True, slots=True)
class Staging:
    home: Home
    tenant: str

    # The program's own. `root` is {SOURCE_PATH}/{CLIENT_ID}; the program may write log files to `log`.
    inbox = Below("in")
    outbox = Below("out")
    log = Below("log")
    # Sealed uploads that no program has seen yet, if the agreement asks for encryption; those that were opened and are about
    # to appear in `in`; files that a run left there and that are about to be sealed.
    arrived = Below("arrived", base="handled")
    given = Below("given", base="handled")
    returned = Below("returned", base="handled")
    # Files on their way into their tables, a folder each, and what became of them.
    taken = Below("taken", base="handled")
    done = Below("done", base="handled")
    failed = Below("failed", base="handled")
    runs = Below("runs", base="handled")
    # Holds the moment up to which the schedule was followed.
    schedule = Below("schedule.json", base="handled")

    @property
    def root(self) -> Path:
        return self.home.source(self.tenant)

    @property
    def handled(self) -> Path:
        return self.home.handled(self.tenant)

    def make(self, owner: int | None = None, *, shared: bool = False, tables: Sequence[str] = ()) -> None:
        """Makes what is missing. With an owner, the program's folders are that user's alone. `shared`: the program runs
        elsewhere, as another user of the platform's group, and finds a folder in `out` for each of the tables: from one
        that it makes itself the platform may take nothing."""
        self.home.sources.mkdir(parents=True, exist_ok=True)
        self.home.sources.chmod(PASSABLE)
        self.handled.mkdir(parents=True, exist_ok=True)
        self.handled.parent.chmod(PRIVATE)
        for folder in (self.taken, self.done, self.failed, self.runs):
            folder.mkdir(exist_ok=True)
        self.root.mkdir(exist_ok=True)
        with hold(self.root) as root:
            for path in (self.inbox, self.outbox, self.log):
                try:
                    _make(root, path.name, owner, shared=shared and path != self.log)
                except OSError as failed:
                    raise unusable(path, failed) from failed
            for table in tables if shared else ():
                with suppress(OSError), root.folder(self.outbox.name) as outbox:
                    _make(outbox, table, owner, shared=True)
            if owner is not None:
                os.fchown(root.descriptor, 0, owner)
                os.fchmod(root.descriptor, PASSABLE_BY_GROUP)


def _make(above: Folder, name: str, owner: int | None, *, shared: bool) -> None:
    with above.make(name, PRIVATE) as folder:
        now = folder.status()
        if owner is not None and now.st_uid != owner:
            os.fchown(folder.descriptor, owner, owner)
        elif owner is None and shared and stat.S_IMODE(now.st_mode) != SHARED_WITH_GROUP:
            os.fchmod(folder.descriptor, SHARED_WITH_GROUP)


def unusable(path: Path, failed: OSError) -> Clash:
    """One of the program's folders."""
    return Clash(
        f"The folder {path.name!r} of {path.parent.name!r} cannot be used: {failed.strerror}.",
        remedy="Its program may have put something else in its place, or it belongs to somebody else: mend that first.",
        code="no_folder",
    )
