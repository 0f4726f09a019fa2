"""Calls of the kernel that Python has no name for, each an OSError where it fails. Standard library alone."""

import ctypes
import os

RDONLY, NOSUID, NODEV, NOEXEC = 1, 2, 4, 8
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
NEW_MOUNTS, NEW_IPC, NEW_USER, NEW_PIDS, NEW_NETWORK = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 4, 24, 38, 47
_CLEAR_ALL = 4
_CAPABILITIES_VERSION = 0x20080522
_MOST_CAPABILITIES = 64
_MOUNT_SETATTR, _HERE, _RECURSIVE = 442, -100, 0x8000
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
LIBC = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64), ("clear", ctypes.c_uint64), ("propagation", ctypes.c_uint64), ("users", ctypes.c_uint64)
    )  # fmt: skip


def checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)
    return result


def unshare(flags: int, what: str) -> None:
    checked(LIBC.unshare(ctypes.c_int(flags)), what)


def make_mounts_private() -> None:
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)


def mount_new(kind: str, place: str, flags: int, options: str = "") -> None:
    """A tmpfs or a proc of its own."""
    _mount(kind, place, kind, flags, options)


def bind(path: str, place: str, *, flags: int = NOSUID | NODEV) -> None:
    """Shows the path at the place too, with everything mounted below it, under these restrictions."""
    _mount(path, place, None, _MS_BIND | _MS_REC)
    restrict(place, flags, recursive=True)


def restrict(place: str, flags: int, *, recursive: bool = False) -> None:
    attributes = _MountAttributes(flags, 0, 0, 0)
    checked(
        LIBC.syscall(
            ctypes.c_long(_MOUNT_SETATTR),
            ctypes.c_long(_HERE),
            os.fsencode(place),
            ctypes.c_long(_RECURSIVE if recursive else 0),
            ctypes.byref(attributes),
            ctypes.c_size_t(ctypes.sizeof(attributes)),
        ),
        f"mount_setattr {place}",
    )


def become_root_of(folder: str) -> None:
    """The folder is `/` from here on; what was there before is nowhere."""
    os.chdir(folder)
    checked(LIBC.syscall(ctypes.c_long(_PIVOT_ROOT[os.uname().machine]), b".", b"."), "pivot_root")
    checked(LIBC.umount2(b".", _DETACH), "umount2")
    os.chdir("/")


def die_with_parent(signal: int) -> None:
    prctl(_PR_SET_PDEATHSIG, signal)


def hide() -> None:
    """Nobody of the same user may look into this process; a program that it starts can be looked at again."""
    prctl(_PR_SET_DUMPABLE, 0)


def drop_bounding_capabilities() -> None:
    """No program that is started later can have any, whatever its file says."""
    for capability in range(_MOST_CAPABILITIES):
        if LIBC.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) != 0:
            break
    prctl(_PR_CAP_AMBIENT, _CLEAR_ALL)


def drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    checked(LIBC.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)())), "capset")


def gain_no_privileges() -> None:
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def prctl(option: int, value: int, pointer: object = 0) -> None:
    checked(LIBC.prctl(ctypes.c_int(option), ctypes.c_ulong(value), pointer, 0, 0), f"prctl {option}")


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    checked(LIBC.mount(*words, ctypes.c_ulong(flags), options.encode() or None), f"mount {target}")
