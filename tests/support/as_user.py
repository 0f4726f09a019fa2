"""Become another user, then a command: `python as_user.py UID COMMAND…`. Needs root, which it gives away for good.

Where that user may not pass a folder above the interpreter, this process sees an empty one with the interpreter in it."""

import os
import signal
import sys
from pathlib import Path

from millrace.manage.confine import kernel


def main() -> None:
    parent = os.getppid()
    kernel.unshare(kernel.NEW_MOUNTS, "mounts of its own")
    kernel.make_mounts_private()
    _make_reachable(Path(sys.base_prefix).resolve())
    user = int(sys.argv[1])
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    # The change of user cancelled it.
    kernel.die_with_parent(signal.SIGKILL)
    if os.getppid() == parent:
        os.execvp(sys.argv[2], sys.argv[2:])


def _make_reachable(folder: Path) -> None:
    closed = [above for above in folder.parents if not above.stat().st_mode & 0o001]
    if closed:
        held = os.open(folder, os.O_PATH)
        kernel.mount_new("tmpfs", str(closed[-1]), 0, "mode=755,size=1m")
        folder.mkdir(parents=True)
        kernel.bind(f"/proc/self/fd/{held}", str(folder))
        os.close(held)


if __name__ == "__main__":
    main()
