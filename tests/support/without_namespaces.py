"""Become a command on a machine that allows no namespaces: `python -m tests.support.without_namespaces COMMAND…`.

In a user namespace of its own the kernel's limit for further ones is 0; nothing else is different."""

import os
import sys
from pathlib import Path

from millrace.manage.confine import kernel


def main() -> None:
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(kernel.NEW_USER, "a user namespace")
    for name, words in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(words)
    Path("/proc/sys/user/max_user_namespaces").write_text("0")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
