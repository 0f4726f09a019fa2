"""`python -m millrace.bounded.nursery FD IDLE_SECONDS MODULE…`: the process that others are forked from. It has imported
everything and started no thread: a fork is quick and copies no lock. It has no secrets: its environment is nearly empty, and
of the descriptors of whoever started it, it has only FD. Where the kernel allows it, it has no network.

A message on FD is `module:function` with two descriptors. A process is forked; it calls the function with a connection over
the first and what the first message there holds. On the second, the starter gets a handle of the process, and then what it
ended with. When FD is closed at the other end, all processes end."""

import ctypes
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

CODE = struct.Struct("<i")
MOST_ASKED = 4096
_NEW_USERS, _NEW_NETWORK = 0x10000000, 0x40000000
_LINK = 3


class _WithoutPandas:
    """Arrow imports pandas, if it can, when the first array is made: that would be once for every process."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("decoders do without it", name=name)


def main() -> None:
    control, idle_seconds = socket.socket(fileno=int(sys.argv[1])), float(sys.argv[2])
    # The terminal's Ctrl-C is for the process that started us, which closes its end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _leave_network()
    sys.meta_path.insert(0, _WithoutPandas())
    for name in sys.argv[3:]:
        importlib.import_module(name)
    # What was imported is never freed in the forks: collecting it would only copy its pages.
    gc.freeze()
    _serve(control, idle_seconds)


def _leave_network() -> None:
    """With root's rights a network of its own suffices. Others get one together with a namespace of users, if they may."""
    unshare = getattr(ctypes.CDLL(None), "unshare", None)
    if unshare is not None and unshare(_NEW_NETWORK):
        unshare(_NEW_USERS | _NEW_NETWORK)


def _serve(control: socket.socket, idle_seconds: float) -> None:
    # By the handle of each process.
    running: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while ready := poll.poll(1000 * idle_seconds if idle_seconds and not running else None):
        for handle, _ in ready:
            if handle in running:
                poll.unregister(handle)
                _report(handle, *running.pop(handle))
                continue
            asked, handles, _, _ = socket.recv_fds(control, MOST_ASKED, 2)
            if not asked:
                for other in running:
                    signal.pidfd_send_signal(other, signal.SIGKILL)
                return
            forked, pid, answers = _forked(asked.decode(), *handles)
            running[forked] = pid, answers
            poll.register(forked, select.POLLIN)


def _forked(function: str, link: int, answers: int) -> tuple[int, int, socket.socket]:
    pid = os.fork()
    if pid == 0:
        _live(function, link)
    os.close(link)
    told = socket.socket(fileno=answers)
    handle = os.pidfd_open(pid)
    with suppress(OSError):
        socket.send_fds(told, [b"."], [handle])
    return handle, pid, told


def _live(function: str, link: int) -> None:
    code = 1
    try:
        os.dup2(link, _LINK)
        os.closerange(_LINK + 1, os.sysconf("SC_OPEN_MAX"))
        connection = Connection(_LINK)
        module, _, name = function.partition(":")
        called = getattr(importlib.import_module(module), name)
        called(connection, pickle.loads(connection.recv_bytes()))
        code = 0
    finally:
        os._exit(code)


def _report(handle: int, pid: int, answers: socket.socket) -> None:
    _, status = os.waitpid(pid, 0)
    os.close(handle)
    with answers, suppress(OSError):
        answers.send(CODE.pack(os.waitstatus_to_exitcode(status)))


if __name__ == "__main__":
    main()
