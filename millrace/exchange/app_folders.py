"""The folders of a tenant's client app: its input and output, and the files that the platform has taken from it.

The server puts uploads into `in`; the program reads them and writes into `out` and `log`, and sees nothing else. The
ingestion managers take its files to `handled`, where no program comes, and import them; the server shows runs and files. A
lost file that was not imported yet must be sent again."""

import os
from dataclasses import dataclass
from pathlib import Path

from millrace.exchange.home import Home

PRIVATE, PASSABLE, SHARED_WITH_GROUP = 0o700, 0o711, 0o750


@dataclass(frozen=True, slots=True)
class Staging:
    home: Home
    tenant: str

    @property
    def root(self) -> Path:
        """{SOURCE_PATH}/{CLIENT_ID}"""
        return self.home.source(self.tenant)

    @property
    def inbox(self) -> Path:
        return self.root / "in"

    @property
    def outbox(self) -> Path:
        return self.root / "out"

    @property
    def log(self) -> Path:
        """Where the program may write log files of its own."""
        return self.root / "log"

    @property
    def arrived(self) -> Path:
        """Sealed uploads that no program has seen yet, if the agreement asks for encryption."""
        return self.home.handled(self.tenant) / "arrived"

    @property
    def given(self) -> Path:
        """Uploads that were opened and are about to appear in `in`."""
        return self.home.handled(self.tenant) / "given"

    @property
    def returned(self) -> Path:
        """Files that a run left in `in` and that are about to be sealed."""
        return self.home.handled(self.tenant) / "returned"

    @property
    def taken(self) -> Path:
        """Files on their way into their tables, a folder each."""
        return self.home.handled(self.tenant) / "taken"

    @property
    def done(self) -> Path:
        return self.home.handled(self.tenant) / "done"

    @property
    def failed(self) -> Path:
        return self.home.handled(self.tenant) / "failed"

    @property
    def runs(self) -> Path:
        return self.home.handled(self.tenant) / "runs"

    @property
    def schedule(self) -> Path:
        """Holds the moment up to which the schedule was followed."""
        return self.home.handled(self.tenant) / "schedule.json"

    def make(self, owner: int | None = None) -> None:
        """Makes what is missing. With an owner, the program's folders are that user's alone."""
        self.home.sources.mkdir(parents=True, exist_ok=True)
        self.home.sources.chmod(PASSABLE)
        self.home.handled(self.tenant).mkdir(parents=True, exist_ok=True)
        self.home.handled(self.tenant).parent.chmod(PRIVATE)
        for folder in (self.taken, self.done, self.failed, self.runs):
            folder.mkdir(exist_ok=True)
        self.root.mkdir(exist_ok=True)
        for folder in (self.inbox, self.outbox, self.log):
            folder.mkdir(mode=PRIVATE, exist_ok=True)
            if owner is not None and folder.lstat().st_uid != owner:
                os.chown(folder, owner, owner, follow_symlinks=False)
        if owner is not None:
            os.chown(self.root, 0, owner)
            self.root.chmod(SHARED_WITH_GROUP)
