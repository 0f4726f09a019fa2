"""Become another program that dies with its parent: `python leash.py PARENT_PID PROGRAM ARGUMENT…`.

The kernel sends SIGKILL when the parent ends, however it ends. Standard library alone, to start in milliseconds."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, argv: list[str]) -> None:
    """Never returns; exits at once if the parent is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(f"{argv[0]} not started: its supervisor {parent} has ended")
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.exit(f"cannot run {argv[0]}: {error.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
