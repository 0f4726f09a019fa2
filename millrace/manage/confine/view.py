"""What a tenant's program sees of the machine: an order in, a file system of its own out. Standard library alone.

It is put together on an empty tmpfs: the machine's programs and libraries, the platform's Python, and the programs of client
apps, all read-only; its own `in`, `out` and `log`; a /tmp, a /dev and a /proc of its own. Nothing else is there."""

import os
from pathlib import Path
from typing import Any

from millrace.beneath.folder import enter
from millrace.manage.confine.kernel import (
    NODEV,
    NOEXEC,
    NOSUID,
    RDONLY,
    become_root_of,
    bind,
    make_mounts_private,
    mount_new,
    restrict,
)

_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {
    "dev/fd": "/proc/self/fd",
    "dev/stdin": "fd/0",
    "dev/stdout": "fd/1",
    "dev/stderr": "fd/2",
    "var/tmp": "../tmp",
}
_READ_ONLY = RDONLY | NOSUID | NODEV
# What libraries look up, and nothing that the operator may keep there for the platform.
_ETC = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "fonts", "gai.conf", "host.conf", "java",
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime", "magic", "mime.types", "networks",
    "nsswitch.conf", "os-release", "perl", "pki", "protocols", "services", "ssl", "terminfo", "timezone",
)  # fmt: skip
_SHARED_MEMORY_MB, _FILES = 64, 65_536


def furnish(view: dict[str, Any]) -> None:
    root = view["anchor"]
    make_mounts_private()
    mount_new("tmpfs", root, NOSUID | NODEV, "mode=755,size=1m")
    for path in view["shown"]:
        _show(path, root)
    _furnish_etc(root, view)
    inbox, source = Path(view["inbox"]), Path(view["source"])
    for name, folder in (("in", inbox), ("out", source / "out"), ("log", source / "log")):
        _show_own(folder, f"{root}/data/{view['tenant']}/{name}")
    _show_programs(Path(view["programs"]), Path(root, "programs"), set(view["others"]))
    if os.path.isdir(root + view["hidden"]):
        mount_new("tmpfs", root + view["hidden"], _READ_ONLY, "mode=000,size=4k")
    _furnish_devices(root)
    for name, size in (("tmp", view["scratch_mb"]), ("dev/shm", _SHARED_MEMORY_MB)):
        os.makedirs(f"{root}/{name}", exist_ok=True)
        mount_new("tmpfs", f"{root}/{name}", NOSUID | NODEV, f"mode=1777,size={size}m,nr_inodes={_FILES}")
    os.mkdir(f"{root}/proc")
    mount_new("proc", f"{root}/proc", NOSUID | NODEV | NOEXEC)
    become_root_of(root)
    restrict("/", _READ_ONLY)


def _show(path: str, root: str) -> None:
    """A link at the top, as /bin often is, stays one; all else is shown where it really lies."""
    place = root + path
    if os.path.islink(path) and path.count("/") == 1:
        os.symlink(os.readlink(path), place)
    elif os.path.isdir(path) and not os.path.lexists(place):
        os.makedirs(place)
        bind(os.path.realpath(path), place, flags=_READ_ONLY)


def _show_own(own: Path, place: str) -> None:
    """The folder itself: its program may once have put a link in its place, when it was not confined."""
    os.makedirs(place)
    with enter(own) as folder:
        bind(f"/proc/self/fd/{folder.descriptor}", place)


def _show_programs(programs: Path, place: Path, others: set[str]) -> None:
    """One by one: a folder that a tenant gets while this program runs must not appear here."""
    place.mkdir()
    for path in sorted(programs.iterdir()):
        shown = place / path.name
        if path.is_symlink():
            shown.symlink_to(path.readlink())
        elif path.is_dir() and path.name not in others:
            shown.mkdir()
            bind(str(path), str(shown), flags=_READ_ONLY)
        elif path.is_file():
            shown.touch()
            bind(str(path), str(shown), flags=_READ_ONLY)


def _furnish_etc(root: str, view: dict[str, Any]) -> None:
    os.makedirs(f"{root}/etc", exist_ok=True)
    user, tenant = view["user"], view["tenant"]
    written = {
        "passwd": f"root:x:0:0:root:/:/bin/sh\n{tenant}:x:{user}:{user}::/tmp:/bin/sh\n",
        "group": f"root:x:0:\n{tenant}:x:{user}:\n",
        "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    }
    for name, text in written.items():
        Path(root, "etc", name).write_text(text)
    for name in (*_ETC, *(("resolv.conf",) if view["network"] else ())):
        real, place = os.path.realpath(f"/etc/{name}"), f"{root}/etc/{name}"
        if os.path.isdir(real):
            os.mkdir(place)
            bind(real, place, flags=_READ_ONLY)
        elif os.path.isfile(real):
            Path(place).touch()
            bind(real, place, flags=_READ_ONLY)


def _furnish_devices(root: str) -> None:
    for folder in ("dev", "var", "run"):
        os.makedirs(f"{root}/{folder}", exist_ok=True)
    for name in _DEVICES:
        Path(root, "dev", name).touch()
        bind(f"/dev/{name}", f"{root}/dev/{name}", flags=NOSUID | NOEXEC)
    for name, target in _LINKS.items():
        os.symlink(target, f"{root}/{name}")
