"""The `out` folders of all programs, watched: folders in, what was seen in them out, by inotify where there is one, else by
looking again and again. Links are never followed; what is no file is not seen."""

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from millrace.beneath.folder import enter
from millrace.manage.completion import How, Seen, Signature, may_be_finished
from millrace.manage.inotify import CLOSED, CREATED, GONE, IS_FOLDER, MOVED_IN, OVERFLOW, Inotify, News, NoInotify
from millrace.observe import log

LOOK_SECONDS = 0.5
MOST_LEVELS = 4
MOST_LOOKED_AT = 20_000
Sighting = tuple[str, Seen]


@dataclass(slots=True)
class _Followed:
    """`watches`: the kernel's number of each folder, with its path below `root`."""

    root: Path
    watches: dict[int, str] = field(default_factory=dict)


class Watcher:
    def __init__(self, *, poll: bool = False) -> None:
        self._followed: dict[str, _Followed] = {}
        self._owner: dict[int, str] = {}
        self._looked_at = 0.0
        self._news: Inotify | None = None
        if not poll:
            try:
                self._news = Inotify()
            except NoInotify as failed:
                log("inotify_unavailable", error=str(failed))

    @property
    def means(self) -> str:
        return "polling" if self._news is None else "inotify"

    @property
    def descriptor(self) -> int | None:
        """Readable when there is news."""
        return None if self._news is None else self._news.descriptor

    def follow(self, tenant: str, root: Path) -> list[Sighting]:
        """From now on; what lies there already is only found."""
        self._followed.setdefault(tenant, _Followed(root))
        return self._enter(tenant, "")

    def forget(self, tenant: str) -> None:
        followed = self._followed.pop(tenant, None)
        for number in followed.watches if followed else ():
            self._owner.pop(number, None)
            if self._news is not None:
                self._news.forget(number)

    def read(self) -> list[Sighting]:
        """What has been seen since."""
        if self._news is not None:
            return [sighting for news in self._news.read() for sighting in self._sightings(news)]
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return []
        self._looked_at = time.monotonic()
        return [sighting for tenant in self._followed for sighting in self._look(tenant)]

    def look(self, tenant: str) -> list[Sighting]:
        """The files there are now. A folder that took the place of a watched one is watched from now on."""
        return self._enter(tenant, "")

    def _look(self, tenant: str, below: str = "") -> list[Sighting]:
        root = self._followed[tenant].root
        found = ((tenant, seen) for folder in _folders(root, below) for seen in _files(root, folder))
        return list(islice(found, MOST_LOOKED_AT))

    def _sightings(self, news: News) -> list[Sighting]:
        if news.what & OVERFLOW:
            return [sighting for tenant in self._followed for sighting in self._enter(tenant, "")]
        tenant = self._owner.get(news.watch)
        if tenant is None or news.what & GONE:
            self._drop(news.watch)
            return []
        path = os.path.join(self._followed[tenant].watches[news.watch], news.name)
        if news.what & IS_FOLDER:
            return self._enter(tenant, path) if may_be_finished(path) else []
        return self._of_file(tenant, path, news.what)

    def _drop(self, watch: int) -> None:
        tenant = self._owner.pop(watch, None)
        if tenant is not None:
            self._followed[tenant].watches.pop(watch, None)

    def _of_file(self, tenant: str, path: str, what: int) -> list[Sighting]:
        followed = self._followed[tenant]
        signature = signature_of(followed.root, path)
        if signature is None or not may_be_finished(path):
            return []
        if what & MOVED_IN or (what & CREATED and _is_linked(followed.root, path)):
            return [(tenant, Seen(path, How.MOVED, time.time(), signature))]
        return [(tenant, Seen(path, How.CLOSED, time.time(), signature))] if what & CLOSED else []

    def _enter(self, tenant: str, below: str) -> list[Sighting]:
        """Watches the folder and those in it first, so that nothing falls between that and looking."""
        followed = self._followed[tenant]
        if self._news is not None:
            for folder in _folders(followed.root, below):
                try:
                    with enter(followed.root) as root, root.folder(folder) as inner:
                        number = self._news.watch(inner)
                except NoInotify as failed:
                    self._give_up_news(failed)
                    break
                except OSError:
                    continue
                followed.watches[number] = folder
                self._owner[number] = tenant
        return self._look(tenant, below)

    def _give_up_news(self, failed: NoInotify) -> None:
        log("inotify_unavailable", error=str(failed))
        assert self._news is not None
        self._news.close()
        self._news = None
        self._owner.clear()
        for followed in self._followed.values():
            followed.watches.clear()


def signature_of(root: Path, path: str) -> Signature | None:
    """Of a file; None for all else."""
    status = _status(root, path)
    return None if status is None else _signature(status)


def _signature(status: os.stat_result) -> Signature | None:
    return (status.st_ino, status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def _is_linked(root: Path, path: str) -> bool:
    """A second name of what was written under a first one."""
    status = _status(root, path)
    return status is not None and status.st_nlink > 1


def _status(root: Path, path: str) -> os.stat_result | None:
    try:
        with enter(root) as folder:
            return folder.status(path)
    except OSError:
        return None


def _entries(root: Path, below: str) -> list[tuple[str, os.stat_result]]:
    try:
        with enter(root) as folder, folder.folder(below) as inner:
            return inner.first(MOST_LOOKED_AT, may_be_finished)
    except OSError:
        return []


def _folders(root: Path, below: str) -> Iterator[str]:
    """The folder and those in it, as paths below the root."""
    yield below
    if below.count("/") + 2 > MOST_LEVELS:
        return
    for name in [name for name, status in _entries(root, below) if stat.S_ISDIR(status.st_mode)]:
        path = os.path.join(below, name)
        if may_be_finished(path):
            yield from _folders(root, path)


def _files(root: Path, folder: str) -> Iterator[Seen]:
    now = time.time()
    for name, status in _entries(root, folder):
        path = os.path.join(folder, name)
        signature = _signature(status)
        if signature is not None and may_be_finished(path):
            yield Seen(path, How.FOUND, now, signature)
