"""Puts links in the place of a tenant's folders and files, from outside its confinement: `python -m checker.hostile.links
FOLDER TARGETS…`. It goes on until it is told to end, and leaves the folders as they were.

It works beneath a handle of the folder and follows no link itself: what is changed elsewhere is the platform's doing."""

import ctypes
import os
import random
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

OWN = ("in", "out", "log")
EXCHANGE = 2
# Most of the time the folders are as they should be, so that programs can start and files are taken.
PAUSE_SECONDS = 0.1
LONGEST_SECONDS = 0.06
LIBC = ctypes.CDLL(None, use_errno=True)


def main(folder: str, targets: Sequence[str]) -> None:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    chance = random.Random()
    while not os.path.isdir(folder):
        if over.wait(PAUSE_SECONDS):
            print(0, flush=True)
            return
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    number = 0
    while not over.wait(PAUSE_SECONDS):
        number += 1
        with suppress(OSError):
            flip(root, chance.choice(OWN), chance.choice(targets), over, chance.random() * LONGEST_SECONDS)
        with suppress(OSError):
            flip_inside(root, chance, targets, over)
    print(number, flush=True)


def flip(above: int, name: str, target: str, over: threading.Event, seconds: float) -> None:
    """For a moment the name is a link."""
    evil = f".evil-{name}"
    with suppress(FileNotFoundError):
        remove(above, evil)
    os.symlink(target, evil, dir_fd=above)
    exchange(above, name, evil)
    over.wait(seconds)
    exchange(above, name, evil)
    os.unlink(evil, dir_fd=above)


def remove(above: int, name: str) -> None:
    """A link. If the platform has put a folder in its place meanwhile, that stays under another name."""
    try:
        os.unlink(name, dir_fd=above)
    except IsADirectoryError:
        os.rename(name, f".kept-{random.getrandbits(32):x}", src_dir_fd=above, dst_dir_fd=above)


def flip_inside(root: int, chance: random.Random, targets: Sequence[str], over: threading.Event) -> None:
    folder = os.open(chance.choice(OWN), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root)
    try:
        found = [name for name in os.listdir(folder) if not name.startswith(".")]
        if found:
            flip(folder, chance.choice(found), chance.choice(targets), over, chance.random() * LONGEST_SECONDS / 4)
    finally:
        os.close(folder)


def exchange(above: int, one: str, other: str) -> None:
    if LIBC.renameat2(above, os.fsencode(one), above, os.fsencode(other), EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), one)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
