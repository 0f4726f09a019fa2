"""A disk that may lose power at any moment: it records what is written, synced and renamed below a folder, and tells what
would be left of it after a cut."""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Names = dict[str, int]


@dataclass(frozen=True, slots=True)
class Moment:
    """The disk at one moment: what was synced, and what was only written. `acknowledged` is what the test had been told."""

    synced_names: dict[int, Names]
    synced_bytes: dict[int, bytes]
    names: dict[int, Names]
    acknowledged: int


class FragileDisk:
    """Below `root`, which itself survives. Everything else survives only if it was synced: content by an fsync of its file, a
    name by an fsync of its folder."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.acknowledged = 0
        self.moments: list[Moment] = []
        self._synced_names: dict[int, Names] = {}
        self._synced_bytes: dict[int, bytes] = {}
        self._folders: set[int] = set()
        # Held open, so that no inode is used twice.
        self._held: list[int] = []
        self._fsync = os.fsync
        patch.setattr(os, "fsync", self._record_sync)
        for name in ("link", "replace", "unlink"):
            patch.setattr(os, name, self._recording(getattr(os, name)))

    def close(self) -> None:
        for descriptor in self._held:
            os.close(descriptor)

    def _record_sync(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if not path.is_relative_to(self.root):
            return
        inode = os.fstat(descriptor).st_ino
        if path.is_dir():
            self._synced_names = {**self._synced_names, inode: self._listed(path)}
        else:
            self._held.append(os.dup(descriptor))
            self._synced_bytes = {**self._synced_bytes, inode: path.read_bytes()}
        self._note()

    def _recording(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*arguments: Any, **options: Any) -> Any:
            result = call(*arguments, **options)
            if Path(arguments[-1]).is_relative_to(self.root):
                self._note()
            return result

        return recorded

    def _note(self) -> None:
        names = {os.stat(folder).st_ino: self._listed(Path(folder)) for folder, _, _ in os.walk(self.root)}
        moment = Moment(self._synced_names, self._synced_bytes, names, self.acknowledged)
        if not self.moments or moment != self.moments[-1]:
            self.moments.append(moment)

    def _listed(self, folder: Path) -> Names:
        found = {entry.name: entry for entry in os.scandir(folder)}
        self._folders |= {entry.inode() for entry in found.values() if entry.is_dir()}
        return {name: entry.inode() for name, entry in found.items()}

    def left(self, moment: Moment, target: Path, luck: random.Random | None) -> None:
        """Writes what is left to `target`. With `luck` some of what was not synced is left as well: names, and parts of
        contents."""
        self._leave(moment, os.stat(self.root).st_ino, target, luck)

    def _leave(self, moment: Moment, folder: int, target: Path, luck: random.Random | None) -> None:
        target.mkdir()
        names = dict(moment.synced_names.get(folder, {}))
        if luck is not None:
            written = moment.names.get(folder, {})
            names = {
                name: inode
                for name, inode in {**names, **written}.items()
                if (name in names and name in written) or luck.random() < 0.7
            }
        for name, inode in names.items():
            if inode in self._folders:
                self._leave(moment, inode, target / name, luck)
            else:
                (target / name).write_bytes(moment.synced_bytes.get(inode, b""))


def cuts(disk: FragileDisk) -> Iterator[tuple[Moment, random.Random | None]]:
    """Each moment, once with what was synced alone, if that has changed, and once with luck."""
    before = None
    for number, moment in enumerate(disk.moments):
        synced = moment.synced_names, moment.synced_bytes, moment.acknowledged
        if synced != before:
            yield moment, None
        before = synced
        yield moment, random.Random(number)
