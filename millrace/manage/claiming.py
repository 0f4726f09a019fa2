"""Files taken out of `out`: a finished file in, a claim out, which outlives any crash; in the end it is filed away.

1. A folder is made in `taken` with claim.json: the key that the import will have, however often it is tried.
2. The file is renamed into it. From here on it belongs to the platform, and no other run can take it.
3. When its import has ended it is renamed to `done` or `failed`, with a report beside it.
4. The claim's folder is removed.
After a crash a claim without its file is removed (that is still in `out`, or filed away already); any other goes on at 3."""

import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from millrace.failpoint import reach
from millrace.staging.folders import Staging

MOST_NAME_BYTES = 200
REPORT = ".report.json"


@dataclass(frozen=True, slots=True)
class Claim:
    """`path`: where it lay in `out`. `attempt`: an import that broke off is tried under another key."""

    id: str
    path: str
    run: str
    span: str
    key: str
    attempt: int = 1

    @property
    def idempotency_key(self) -> str:
        return f"{self.key}.{self.attempt}"

    @property
    def name(self) -> str:
        return safe_name(self.path.rpartition("/")[2])


def take(staging: Staging, path: str, run: str, span: str) -> Claim | None:
    """None if it is gone."""
    claim = _new_claim(staging, path, run, span)
    reach("manage_before_take")
    try:
        with _folder_of(staging.outbox, path) as folder:
            os.rename(path.rpartition("/")[2], file_of(staging, claim), src_dir_fd=folder)
    except OSError:
        shutil.rmtree(staging.taken / claim.id, ignore_errors=True)
        return None
    reach("manage_after_take")
    return claim


def _new_claim(staging: Staging, path: str, run: str, span: str) -> Claim:
    number = time.time_ns()
    while True:
        claim = Claim(f"{number:020d}", path, run, span, secrets.token_urlsafe(12))
        try:
            (staging.taken / claim.id).mkdir()
        except FileExistsError:
            number += 1
            continue
        (staging.taken / claim.id / "file").mkdir()
        _write(staging, claim)
        return claim


@contextmanager
def _folder_of(root: Path, path: str) -> Iterator[int]:
    """The folder that holds the file, entered level by level: its program could put a link in any of them."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    descriptor = os.open(root, flags)
    try:
        for part in path.split("/")[:-1]:
            inner = os.open(part, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def file_of(staging: Staging, claim: Claim) -> Path:
    return staging.taken / claim.id / "file" / claim.name


def is_plain(path: Path) -> bool:
    """A file with this one name: no device, no link, no second name of somebody else's file."""
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def tried_again(staging: Staging, claim: Claim) -> Claim:
    again = replace(claim, attempt=claim.attempt + 1)
    _write(staging, again)
    return again


def _write(staging: Staging, claim: Claim) -> None:
    partial = staging.taken / claim.id / "claim.new"
    partial.write_text(json.dumps(asdict(claim)))
    partial.replace(staging.taken / claim.id / "claim.json")


def open_claims(staging: Staging) -> list[Claim]:
    """Those whose files are still here, in the order in which they were taken; the others are removed."""
    found: list[Claim] = []
    if not staging.taken.is_dir():
        return found
    for folder in sorted(staging.taken.iterdir()):
        claim = _read(staging, folder.name)
        if claim is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            found.append(claim)
    return found


def still_open(staging: Staging, claims: Sequence[Claim]) -> tuple[Claim, ...]:
    """As they are now, those that have been filed away left out."""
    return tuple(claim for known in claims if (claim := _read(staging, known.id)) is not None)


def _read(staging: Staging, claim_id: str) -> Claim | None:
    try:
        claim = Claim(**json.loads((staging.taken / claim_id / "claim.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return claim if os.path.lexists(file_of(staging, claim)) else None


def file_away(staging: Staging, claim: Claim, report: dict[str, Any]) -> Path:
    """Where it lies now: below `done` or `failed`, in a folder named by its span, as in `out`."""
    top = staging.done if report["state"] == "completed" else staging.failed
    inner = [safe_name(part) for part in claim.path.split("/")[:-1]]
    folder = top.joinpath(claim.span.rpartition("/")[2], *inner)
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / claim.name
    if os.path.lexists(place):
        place = folder / f"{claim.id}-{claim.name}"
    place.with_name(place.name + REPORT).write_text(json.dumps(report, indent=2) + "\n")
    reach("manage_before_filing")
    os.rename(file_of(staging, claim), place)
    os.utime(place, follow_symlinks=False)
    reach("manage_after_filing")
    shutil.rmtree(staging.taken / claim.id, ignore_errors=True)
    return place


def safe_name(name: str) -> str:
    """As a file of ours may be called, with its ending."""
    clean = os.fsencode(name).decode(errors="backslashreplace")
    if len(clean.encode()) <= MOST_NAME_BYTES:
        return clean
    stem, ending = os.path.splitext(clean)
    return stem.encode()[: MOST_NAME_BYTES // 2].decode(errors="ignore") + ending[-20:]
