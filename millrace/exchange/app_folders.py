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
from millrace.model.agreement import THE_APP
from millrace.model.errors import Clash
from millrace.model.names import checked_name

PRIVATE, PASSABLE, PASSABLE_BY_GROUP, SHARED_WITH_GROUP = 0o700, 0o711, 0o750, 0o2770


@dataclass(frozen=True, slots=True)
class Staging:
    """Of one program of a tenant. A tenant's only one has the tenant's own folders; each of several has folders of its own
    below `apps`."""

    home: Home
    tenant: str
    app: str = THE_APP

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

    # While replicas divide the files of `in`: a folder for each, with those that it has claimed.
    claims = Below("replicas")

    @property
    def slug(self) -> str:
        """Tells it from the others of all tenants: no name has a dot."""
        return app_slug(self.tenant, self.app)

    @property
    def source_path(self) -> Path:
        """What an unconfined program is told as SOURCE_PATH."""
        return self.home.sources if self.app == THE_APP else self.home.app_source(self.tenant, self.app)

    @property
    def root(self) -> Path:
        return self.source_path / checked_name("tenant", self.tenant)

    @property
    def handled(self) -> Path:
        of_tenant = self.home.handled(self.tenant)
        return of_tenant if self.app == THE_APP else of_tenant / "apps" / checked_name("app", self.app)

    def claimed(self, replica: int) -> Path:
        """The `in` of one of several replicas."""
        return self.claims / str(replica)

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
        self._make_above(owner)
        with hold(self.root) as root:
            for path in (self.inbox, self.outbox, self.log):
                try:
                    own_folder(root, path.name, owner, shared=shared and path != self.log).close()
                except OSError as failed:
                    raise unusable(path, failed) from failed
            for table in tables if shared else ():
                with suppress(OSError), root.folder(self.outbox.name) as outbox:
                    own_folder(outbox, table, owner, shared=True).close()
            if owner is not None:
                os.fchown(root.descriptor, 0, owner)
                os.fchmod(root.descriptor, PASSABLE_BY_GROUP)

    def _make_above(self, owner: int | None) -> None:
        """The folders above the program's own, in which it can make nothing itself."""
        levels = [self.root]
        while levels[-1].parent != self.home.sources:
            levels.append(levels[-1].parent)
        for level in reversed(levels):
            level.mkdir(exist_ok=True)
            if owner is not None and level != self.root:
                os.chown(level, 0, owner)
                level.chmod(PASSABLE_BY_GROUP)


@dataclass(frozen=True, slots=True)
class AppFolders:
    home: Home

    def __call__(self, tenant: str, app: str = THE_APP) -> Staging:
        return Staging(self.home, tenant, app)

    def all(self, tenant: str) -> list[Staging]:
        """Of every program that the tenant has or had."""
        folder = self.home.handled(tenant) / "apps"
        named = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        return [self(tenant), *(self(tenant, name) for name in named)]


def app_slug(tenant: str, app: str) -> str:
    return tenant if app == THE_APP else f"{tenant}.{app}"


def own_folder(above: Folder, name: str, owner: int | None, *, shared: bool) -> Folder:
    """A folder that a program may write, made if it is missing. Whoever calls this closes it."""
    folder = above.make(name, PRIVATE)
    now = folder.status()
    if owner is not None and now.st_uid != owner:
        os.fchown(folder.descriptor, owner, owner)
    elif owner is None and shared and stat.S_IMODE(now.st_mode) != SHARED_WITH_GROUP:
        os.fchmod(folder.descriptor, SHARED_WITH_GROUP)
    return folder


def unusable(path: Path, failed: OSError) -> Clash:
    """One of the program's folders."""
    return Clash(
        f"The folder {path.name!r} of {path.parent.name!r} cannot be used: {failed.strerror}.",
        remedy="Its program may have put something else in its place, or it belongs to somebody else: mend that first.",
        code="no_folder",
    )
