"""The kernel's news of folders: folders in, what happens in them out. Raises NoInotify where there is none."""

import ctypes
import errno
import os
import struct
from dataclasses import dataclass

from millrace.beneath.folder import Folder

CLOSED, MOVED_IN, CREATED, IS_FOLDER, OVERFLOW, GONE = 0x8, 0x80, 0x100, 0x40000000, 0x4000, 0x8000
_WATCHED = CLOSED | MOVED_IN | CREATED
_ONLY_FOLDERS = 0x01000000
_HEADER = struct.Struct("iIII")
_BUFFER_BYTES = 1 << 16


class NoInotify(OSError):
    """This machine has none, or none left."""


@dataclass(frozen=True, slots=True)
class News:
    """`watch` is what `watch` returned for the folder, -1 when news were lost."""

    watch: int
    what: int
    name: str


class Inotify:
    def __init__(self) -> None:
        try:
            self._libc = ctypes.CDLL(None, use_errno=True)
            self.descriptor = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, AttributeError) as failed:
            raise NoInotify(errno.ENOSYS, "no inotify") from failed
        if self.descriptor < 0:
            raise NoInotify(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def watch(self, folder: Folder) -> int:
        """Refuses more folders than the machine allows."""
        # The folder itself, by its descriptor: whatever has its name by now is another one.
        held = f"/proc/self/fd/{folder.descriptor}".encode()
        number = self._libc.inotify_add_watch(self.descriptor, held, ctypes.c_uint32(_WATCHED | _ONLY_FOLDERS))
        if number < 0:
            failed = ctypes.get_errno()
            if failed == errno.ENOSPC:
                raise NoInotify(failed, "fs.inotify.max_user_watches is used up")
            raise OSError(failed, os.strerror(failed))
        return int(number)

    def forget(self, number: int) -> None:
        self._libc.inotify_rm_watch(self.descriptor, number)

    def read(self) -> list[News]:
        """What has happened since; nothing if nothing has."""
        found: list[News] = []
        while True:
            try:
                data = os.read(self.descriptor, _BUFFER_BYTES)
            except BlockingIOError:
                return found
            at = 0
            while at < len(data):
                number, what, _, size = _HEADER.unpack_from(data, at)
                at += _HEADER.size
                found.append(News(number, what, os.fsdecode(data[at : at + size].rstrip(b"\0"))))
                at += size

    def close(self) -> None:
        os.close(self.descriptor)
