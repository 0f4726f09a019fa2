"""Renames a file without replacing another one: FileExistsError if the name is taken."""

import ctypes
import errno
import os
from pathlib import Path

_HERE, _NOT_OVER = -100, 1
# Errors of file systems and machines that cannot do this.
_UNKNOWN = (errno.EINVAL, errno.ENOSYS)


def rename_new(source: Path, target: Path) -> None:
    """In one step where the kernel can: with a link and an unlink, a crash in between would leave two files."""
    code = _renamed(os.fsencode(source), os.fsencode(target))
    if code in _UNKNOWN:
        if os.path.lexists(target):
            code = errno.EEXIST
        else:
            return os.rename(source, target)
    if code:
        raise OSError(code, os.strerror(code), str(source), None, str(target))
    return None


def _renamed(source: bytes, target: bytes) -> int:
    """The kernel's error, 0 if there is none."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return errno.ENOSYS
    return ctypes.get_errno() if rename(_HERE, source, _HERE, target, _NOT_OVER) else 0
