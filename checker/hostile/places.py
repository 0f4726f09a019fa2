"""Places of others that a hostile tenant must neither change nor read: files with canaries are planted there, and looked at
again later."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

BLOCK = 512
LARGEST = 64 << 20
KEPT_OF_A_TENANT = ("sources/{}", "handled/{}", "lake/{}", "errors/{}", "staged/{}", "programs/{}")
OF_THE_PLATFORM = "of-the-platform.csv"
PLANTED_IN = ("sources/{}/in", "sources/{}/out", "sources/{}/log", "handled/{}/done", "programs/{}")


def plant(home: Path, canaries: Mapping[str, str]) -> list[Path]:
    """Files of the other tenants and of the platform itself. Their names and their content tell whose they are."""
    planted = [home / OF_THE_PLATFORM]
    planted[0].write_text("".join(f"k,w\n1,{canary}\n" for canary in canaries.values()))
    for tenant, canary in canaries.items():
        for place in PLANTED_IN:
            folder = home / place.format(tenant)
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{canary}.csv"
            path.write_text(f"k,w\n1,{canary}\n")
            planted.append(path)
    return planted


def looks(home: Path, paths: Iterable[Path]) -> dict[str, tuple[object, ...]]:
    """Everything that could be changed about files and the folders they are in. The home itself changes all the time."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted({each for inner in paths for each in (inner, inner.parent)} - {home}):
        try:
            status = path.lstat()
            is_folder = stat.S_ISDIR(status.st_mode)
            content = sorted(os.listdir(path)) if is_folder else hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path)] = (status.st_mode, status.st_uid, status.st_gid, status.st_nlink, str(content))
        except OSError as error:
            found[str(path)] = (type(error).__name__,)
    return found


def changed(before: Mapping[str, tuple[object, ...]], after: Mapping[str, tuple[object, ...]]) -> list[str]:
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def leaks(home: Path, tenant: str, secrets: Iterable[str]) -> list[str]:
    """Files that the platform keeps for the tenant, or the tenant itself has, with somebody else's secret in name or
    content."""
    wanted = [secret.encode() for secret in secrets]
    roots = [home / place.format(tenant) for place in KEPT_OF_A_TENANT]
    return sorted(str(path.relative_to(home)) for root in roots for path in _files(root) if _holds(path, wanted))


def _files(root: Path) -> Iterator[Path]:
    """No link is followed. What lies deeper than a path can say is left out: only its owner can have put it there."""
    for folder, folders, names in os.walk(root):
        yield from (Path(folder) / name for name in (*folders, *names))


def _holds(path: Path, wanted: Iterable[bytes]) -> bool:
    if any(secret in os.fsencode(path.name) for secret in wanted):
        return True
    try:
        # Neither a link nor a pipe that takes the file's place keeps us.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            is_small = stat.S_ISREG(status.st_mode) and status.st_blocks * BLOCK < LARGEST
            content = file.read() if is_small else b""
    except OSError:
        return False
    return any(secret in content for secret in wanted)
