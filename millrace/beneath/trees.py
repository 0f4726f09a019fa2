"""Everything beneath a folder that other people's programs write: removed, cleared of what is old, or measured."""

import os
import stat
import uuid
from contextlib import suppress

from millrace.beneath.folder import Folder

# Each level costs a descriptor.
_MOST_LEVELS = 32


def remove(folder: Folder, name: str) -> None:
    """Whatever it is, with all that lies in it, however deep. Raises OSError if somebody fills it faster."""
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if stat.S_ISDIR(folder.status(one).st_mode):
            with _entered(folder, one) as inner:
                waiting += _emptied(inner, folder, _MOST_LEVELS)
            folder.rmdir(one)
        else:
            folder.unlink(one)


def clear(folder: Folder, before: float) -> int:
    """Removes files last changed before then, and folders that are empty by that: how many files went."""
    return _cleared(folder, before, _MOST_LEVELS)


def size(folder: Folder) -> int:
    """The bytes of all files; what goes meanwhile is not counted."""
    total, waiting = 0, [""]
    while waiting:
        path = waiting.pop()
        for name, status in _entries_of(folder, path):
            if stat.S_ISDIR(status.st_mode):
                waiting.append(f"{path}/{name}" if path else name)
            elif stat.S_ISREG(status.st_mode):
                total += status.st_size
    return total


def _entries_of(root: Folder, path: str) -> list[tuple[str, os.stat_result]]:
    try:
        with root.folder(path) as folder:
            return folder.entries()
    except OSError:
        # It has gone, is closed to us, or lies deeper than a path can say.
        return []


def _entered(parent: Folder, name: str) -> Folder:
    """Also one that its owner, who may be the platform's own user, has closed to everybody."""
    try:
        return parent.folder(name)
    except PermissionError:
        held = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent.descriptor)
        try:
            os.chmod(f"/proc/self/fd/{held}", stat.S_IRWXU)
        finally:
            os.close(held)
        return parent.folder(name)


def _emptied(folder: Folder, top: Folder, levels: int) -> list[str]:
    """Removes what lies in the folder; what lies too deep moves up to the top: its names there."""
    moved: list[str] = []
    for name, status in folder.entries():
        if not stat.S_ISDIR(status.st_mode):
            folder.unlink(name)
        elif levels:
            with _entered(folder, name) as inner:
                moved += _emptied(inner, top, levels - 1)
            folder.rmdir(name)
        else:
            moved.append(f".{uuid.uuid4().hex}.removed")
            os.rename(name, moved[-1], src_dir_fd=folder.descriptor, dst_dir_fd=top.descriptor)
    return moved


def _cleared(folder: Folder, before: float, levels: int) -> int:
    gone = 0
    for name, status in folder.entries():
        # Somebody else was quicker, or fills the folder again.
        with suppress(OSError):
            if stat.S_ISDIR(status.st_mode) and levels:
                with folder.folder(name) as inner:
                    gone += _cleared(inner, before, levels - 1)
                folder.rmdir(name)
            elif not stat.S_ISDIR(status.st_mode) and status.st_mtime < before:
                folder.unlink(name)
                gone += 1
    return gone
