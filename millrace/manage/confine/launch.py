"""Become a tenant's program: what to run as JSON on standard input; the exit code is the program's.

With a `view` the program gets a world of its own: a file system (`view.py`), processes, no network, no privileges, and only
the system calls that it needs (`seccomp.py`). With a `user` it becomes that one; otherwise a user namespace makes all this
possible without root. It dies with whoever started this. Standard library alone, to start in milliseconds."""

import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from millrace.manage.confine.bounds import bounds_of
from millrace.manage.confine.kernel import (
    NEW_IPC,
    NEW_MOUNTS,
    NEW_NETWORK,
    NEW_PIDS,
    NEW_USER,
    die_with_parent,
    drop_bounding_capabilities,
    drop_capabilities,
    gain_no_privileges,
    hide,
    unshare,
)
from millrace.manage.confine.seccomp import forbid
from millrace.manage.confine.view import furnish

_GET_FLAGS, _SET_FLAGS, _IS_UP = 0x8913, 0x8914, 1
NOT_CONFINED = "the program could not be confined"
REAPED_AT_ONCE = 1000
CANNOT_RUN, NOT_FOUND, KILLED = 126, 127, 128 + signal.SIGKILL


def main() -> NoReturn:
    try:
        _launch(json.load(sys.stdin))
    except BaseException as error:
        _give_up(f"{NOT_CONFINED}: {error}", CANNOT_RUN)


def _launch(order: dict[str, Any]) -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _die_with(order["parent"])
    if order.get("cgroup"):
        with open(os.path.join(order["cgroup"], "cgroup.procs"), "w") as members:
            members.write(str(os.getpid()))
    if order.get("view") is None:
        _become(order)
    if order.get("user") is None:
        _enter_user_namespace(order["view"]["user"])
    unshare(NEW_MOUNTS | NEW_IPC | NEW_PIDS | (0 if order["view"]["network"] else NEW_NETWORK), "new namespaces")
    # A change of privileges cancels it.
    _die_with(order["parent"])
    _pass_on(_forked(lambda: _first_of_its_world(order)))


def _enter_user_namespace(user: int) -> None:
    """There this process may do everything; outside it is who it was."""
    outside = os.geteuid(), os.getegid()
    unshare(NEW_USER, "a user namespace")
    for name, words in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {outside[0]} 1"),
        ("gid_map", f"{user} {outside[1]} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(words)


def _first_of_its_world(order: dict[str, Any]) -> NoReturn:
    """Process 1: when it ends, so does everything that the program started."""
    # Its parent is outside, where its number is not known here: that it has gone shows as 0 in any case.
    die_with_parent(signal.SIGKILL)
    furnish(order["view"])
    if not order["view"]["network"]:
        _raise_loopback()
    bounds = bounds_of(order)
    hide()
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = _forked(lambda: _become(order))
    _hand_on_signals(child)
    _watch(child, reading, bounds.breach)


def _watch(child: int, reading: int, look: Callable[[], tuple[str | None, float]]) -> NoReturn:
    """Looks at the limits when it is time, whatever else happens: processes of the program may end all the time."""
    due, is_more = time.monotonic(), False
    while True:
        pause = 0.0 if is_more else max(0.0, due - time.monotonic())
        if select.select([reading], [], [], pause)[0]:
            os.read(reading, 4096)
        is_more = _reap(child)
        if time.monotonic() >= due:
            breach, pause = look()
            if breach is not None:
                _give_up(f"ended: the program uses {breach}", KILLED)
            due = time.monotonic() + pause


def _reap(child: int) -> bool:
    """Whoever has lost its parent is this process's; the end of the program is the end of all. True if more may have
    ended."""
    for _ in range(REAPED_AT_ONCE):
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if ended == child:
            _exit_as(status)
        if ended == 0:
            return False
    return True


def _forked(work: Callable[[], NoReturn]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            _give_up(f"{NOT_CONFINED}: {error}", CANNOT_RUN)
    return child


def _pass_on(child: int) -> NoReturn:
    """Requests to stop, and how the child ended."""
    _hand_on_signals(child)
    while True:
        ended, status = os.wait()
        if ended == child:
            _exit_as(status)


def _hand_on_signals(child: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: os.kill(child, number))


def _exit_as(status: int) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _raise_loopback() -> None:
    """Its own, where nobody but the program itself listens."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14s", b"lo", 0, b"")
        name, flags, rest = struct.unpack("16sH14s", fcntl.ioctl(any_socket, _GET_FLAGS, request))
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14s", name, flags | _IS_UP, rest))


def _become(order: dict[str, Any]) -> NoReturn:
    limits, is_confined = order["limits"], order.get("view") is not None
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    if is_confined:
        # A signal to its whole group must not reach the processes that watch it.
        os.setsid()
    for name, most in limits["resources"].items():
        resource.setrlimit(getattr(resource, name), (most, most))
    if limits.get("cores"):
        os.sched_setaffinity(0, limits["cores"])
    if limits.get("nice"):
        os.nice(limits["nice"])
    parent = os.getppid()
    if is_confined:
        drop_bounding_capabilities()
    if order.get("user") is not None:
        os.setgroups([])
        os.setresgid(order["user"], order["user"], order["user"])
        os.setresuid(order["user"], order["user"], order["user"])
    if is_confined:
        drop_capabilities()
    if sys.platform == "linux":
        die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(CANNOT_RUN)
        gain_no_privileges()
    os.umask(0o077)
    if is_confined:
        forbid()
    try:
        os.chdir(order["folder"])
        os.execvpe(order["command"][0], order["command"], order["environ"])
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        _give_up(f"cannot run {order['command'][0]}: {error.strerror}", NOT_FOUND if missing else CANNOT_RUN)


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        _give_up(f"not started: its manager {parent} has ended", CANNOT_RUN)


def _give_up(why: str, code: int) -> NoReturn:
    print(f"millrace: {why}", file=sys.stderr, flush=True)
    os._exit(code)
