"""A file renamed, but never over another: a path and a free name in, FileExistsError out if somebody else has that name."""

import ctypes
import errno
import os
from pathlib import Path

_HERE, _NOT_OVER = -100, 1
# Filesystems and machines that know no such renaming.
_UNKNOWN = (errno.EINVAL, errno.ENOSYS)


def rename_new(source: Path, target: Path) -> None:
    """At once where the kernel can do that: a link and then an unlink would, after a crash between them, be two files."""
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
