"""Become a tenant's program: `python confine.py` with what to run, as JSON on standard input; its exit code is the program's.

With a `view` the program gets a world of its own: the machine's files without the platform's home, its own /tmp and
processes, no network, and of the platform only {SOURCE_PATH}/{CLIENT_ID} and the programs. With a `user` it becomes that one.
It dies with whoever started this. Standard library alone, to start in milliseconds."""

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
from typing import Any, NoReturn

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_MOVE, _MS_REC, _MS_PRIVATE = (
    1, 2, 4, 32, 4096, 8192, 16384, 1 << 18,
)  # fmt: skip
_NEW_MOUNTS, _NEW_IPC, _NEW_PIDS, _NEW_NETWORK = 0x00020000, 0x08000000, 0x20000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_GET_FLAGS, _SET_FLAGS, _IS_UP = 0x8913, 0x8914, 1
_OWN_WORDS = {"data", "programs"}
_PRIVATE_FOLDERS = ("tmp", "var/tmp", "dev/shm")
CANNOT_RUN, NOT_FOUND = 126, 127
_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> NoReturn:
    order: dict[str, Any] = json.load(sys.stdin)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _die_with(order["parent"])
    if order.get("cgroup"):
        with open(os.path.join(order["cgroup"], "cgroup.procs"), "w") as members:
            members.write(str(os.getpid()))
    if order.get("view") is None:
        _become(order)
    _unshare(_NEW_MOUNTS | _NEW_IPC | _NEW_PIDS | (0 if order["view"]["network"] else _NEW_NETWORK))
    _await(_forked(lambda: _first_of_its_world(order)))


def _first_of_its_world(order: dict[str, Any]) -> NoReturn:
    """Process 1: when it ends, so does everything that the program started."""
    # Its parent is outside, where its number is not known here: that it has gone shows as 0 in any case.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _furnish(order["view"])
    if not order["view"]["network"]:
        _raise_loopback()
    _await(_forked(lambda: _become(order)))


def _forked(work: Any) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            _give_up(f"the program could not be confined: {error}", CANNOT_RUN)
    return child


def _await(child: int) -> NoReturn:
    """Passes on requests to stop, and how the child ended."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: os.kill(child, number))
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _furnish(view: dict[str, Any]) -> None:
    root = view["anchor"]
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=16m")
    # The folder that holds the anchor comes first: bound later, it would bring along what is mounted by then.
    first = os.path.abspath(root).split("/")[1]
    for name in sorted(set(os.listdir("/")) - _OWN_WORDS - {"proc"}, key=lambda name: (name != first, name)):
        _show(f"/{name}", f"{root}/{name}")
    _bind(view["source"], f"{root}/data/{view['tenant']}")
    _bind(view["programs"], f"{root}/programs")
    _mount(None, f"{root}/programs", None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID)
    for folder in _PRIVATE_FOLDERS:
        if os.path.isdir(f"{root}/{folder}"):
            _mount("tmpfs", f"{root}/{folder}", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777,size=256m")
    if os.path.isdir(hidden := root + view["hidden"]):
        _mount("tmpfs", hidden, "tmpfs", _MS_RDONLY, "mode=000,size=4k")
    os.mkdir(f"{root}/proc")
    _mount("proc", f"{root}/proc", "proc", _MS_NOSUID | _MS_NODEV)
    os.chdir(root)
    _mount(root, "/", None, _MS_MOVE)
    os.chroot(".")


def _show(path: str, shown: str) -> None:
    if os.path.islink(path):
        os.symlink(os.readlink(path), shown)
    elif os.path.isdir(path):
        _bind(path, shown, _MS_REC)


def _bind(path: str, shown: str, more: int = 0) -> None:
    os.makedirs(shown)
    _mount(path, shown, None, _MS_BIND | more)


def _raise_loopback() -> None:
    """Its own, where nobody but the program itself listens."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14s", b"lo", 0, b"")
        name, flags, rest = struct.unpack("16sH14s", fcntl.ioctl(any_socket, _GET_FLAGS, request))
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14s", name, flags | _IS_UP, rest))


def _become(order: dict[str, Any]) -> NoReturn:
    limits = order["limits"]
    for name, most in limits["resources"].items():
        resource.setrlimit(getattr(resource, name), (most, most))
    if limits.get("cores"):
        os.sched_setaffinity(0, limits["cores"])
    if limits.get("nice"):
        os.nice(limits["nice"])
    parent = os.getppid()
    if order.get("user") is not None:
        os.setgroups([])
        os.setresgid(order["user"], order["user"], order["user"])
        os.setresuid(order["user"], order["user"], order["user"])
        # A change of user cancels it.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(CANNOT_RUN)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    os.umask(0o077)
    try:
        os.chdir(order["folder"])
        os.execvpe(order["command"][0], order["command"], order["environ"])
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        _give_up(f"cannot run {order['command'][0]}: {error.strerror}", NOT_FOUND if missing else CANNOT_RUN)


def _die_with(parent: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        _give_up(f"not started: its manager {parent} has ended", CANNOT_RUN)


def _give_up(why: str, code: int) -> NoReturn:
    print(f"millrace: {why}", file=sys.stderr, flush=True)
    os._exit(code)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        _LIBC.prctl(option, value, 0, 0, 0)


def _unshare(flags: int) -> None:
    if _LIBC.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "unshare")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    given = None if data is None else data.encode()
    if _LIBC.mount(*words, ctypes.c_ulong(flags), given) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


if __name__ == "__main__":
    try:
        main()
    except BaseException as error:
        _give_up(f"the program could not be confined: {error}", CANNOT_RUN)
