"""The kernel's calls that never leave a folder: a descriptor and names in, a descriptor out, or a file renamed."""

import ctypes
import errno
import os
import sys
from functools import cache
from pathlib import Path

TO_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPENAT2 = 437
_NO_MAGIC_LINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_HERE, _NOT_OVER = -100, 1
# Errors of file systems and machines that cannot rename without replacing.
_CANNOT_RENAME_SO = (errno.EINVAL, errno.ENOSYS)
_LIBC = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def opened_beneath(folder: int, path: str) -> int:
    """The folder at the path; a link on the way is an OSError (ELOOP or ENOTDIR)."""
    parts = [checked(part) for part in path.split("/")] if path else []
    if _knows_openat2():
        how = _How(TO_ENTER, 0, _BENEATH | _NO_SYMLINKS | _NO_MAGIC_LINKS)
        name = os.fsencode("/".join(parts) or ".")
        found = _LIBC.syscall(ctypes.c_long(_OPENAT2), folder, name, ctypes.byref(how), ctypes.c_size_t(24))
        if found < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
        return int(found)
    return _opened_by_parts(folder, parts)


def _opened_by_parts(folder: int, parts: list[str]) -> int:
    descriptor = os.open(".", TO_ENTER, dir_fd=folder)
    for part in parts:
        try:
            inner = os.open(part, TO_ENTER, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


@cache
def _knows_openat2() -> bool:
    """Old kernels do not know the call, and some containers forbid it."""
    if sys.platform != "linux":
        return False
    how = _How(TO_ENTER, 0, _BENEATH)
    root = os.open("/", TO_ENTER)
    found = _LIBC.syscall(ctypes.c_long(_OPENAT2), root, b".", ctypes.byref(how), ctypes.c_size_t(24))
    os.close(root)
    if found >= 0:
        os.close(found)
    return bool(found >= 0)


def checked(name: str) -> str:
    """One name, which leads nowhere else."""
    if name in ("", ".", "..") or "/" in name:
        raise OSError(errno.EINVAL, "not the name of a file", name)
    return name


def rename_new(source: str | Path, target: str | Path, folder: int = _HERE, into: int | None = None) -> None:
    """Renames a file without replacing another one: FileExistsError if the name is taken. In one step where the kernel can:
    with a link and an unlink, a crash in between would leave two files."""
    into = folder if into is None else into
    code = _renamed(os.fsencode(source), os.fsencode(target), folder, into)
    inside, there = (None if one == _HERE else one for one in (folder, into))
    if code in _CANNOT_RENAME_SO:
        try:
            os.stat(target, dir_fd=there, follow_symlinks=False)
            code = errno.EEXIST
        except FileNotFoundError:
            return os.rename(source, target, src_dir_fd=inside, dst_dir_fd=there)
    if code:
        raise OSError(code, os.strerror(code), str(source), None, str(target))
    return None


def _renamed(source: bytes, target: bytes, folder: int, into: int) -> int:
    """The kernel's error, 0 if there is none."""
    try:
        rename = _LIBC.renameat2
    except AttributeError:
        return errno.ENOSYS
    return ctypes.get_errno() if rename(folder, source, into, target, _NOT_OVER) else 0
