"""Files taken out of `out`: a finished file in, a claim out, which outlives any crash; in the end it is filed away.

1. A folder is made in `taken` with claim.json: the key that the import will have, however often it is tried.
2. The file is renamed into it. From here on it belongs to the platform, and no other run can take it.
3. Where the agreement asks for encryption, NAME.sealed takes its place, before anything is sent.
4. When its import has ended it is renamed to `done` or `failed`, with a report beside it.
5. The claim's folder is removed.
After a crash a claim without its file is removed (that is still in `out`, or filed away already); any other goes on at 3."""

import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from millrace.atomic import replace_file, replacing
from millrace.beneath.folder import enter
from millrace.exchange.app_folders import Staging
from millrace.failpoint import reach
from millrace.model.errors import Corrupt
from millrace.model.names import new_id
from millrace.observe import observe
from millrace.seal.keyring import Keyring
from millrace.staging.sealed import SealedFile, own_seal, plain_size, seal_file

MOST_NAME_BYTES = 200
REPORT, SEALED = ".report.json", ".sealed"


@dataclass(frozen=True, slots=True)
class Claim:
    """`path`: where it lay in `out`. `attempt`: an import that broke off is tried under another key. `data_key`: what seals
    the file; empty: nothing does. `fault`: why it must not be imported."""

    id: str
    path: str
    run: str
    span: str
    key: str
    attempt: int = 1
    data_key: str = ""
    fault: dict[str, str] | None = None

    @property
    def idempotency_key(self) -> str:
        return f"{self.key}.{self.attempt}"

    @property
    def name(self) -> str:
        return safe_name(self.path.rpartition("/")[2])


def take(
    staging: Staging, path: str, run: str, span: str, *, data_key: str = "", fault: dict[str, str] | None = None
) -> Claim | None:
    """None if it is gone."""
    claim = _new_claim(staging, Claim("", path, run, span, secrets.token_urlsafe(12), data_key=data_key, fault=fault))
    reach("manage_before_take")
    try:
        with enter(staging.outbox) as outbox:
            outbox.move_out(path, file_of(staging, claim))
    except OSError as failed:
        shutil.rmtree(staging.taken / claim.id, ignore_errors=True)
        if isinstance(failed, PermissionError):
            why = f"out/{path} cannot be taken: {failed.strerror}. Let the group write to its folder (chmod g+w)."
            observe("trouble", kind="client_app", tenant=staging.tenant, error=why)
        return None
    reach("manage_after_take")
    return claim


def _new_claim(staging: Staging, wanted: Claim) -> Claim:
    number = time.time_ns()
    while True:
        folder = staging.taken / f"{number:020d}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
            continue
        (folder / "file").mkdir()
        return changed(staging, wanted, id=folder.name)


def file_of(staging: Staging, claim: Claim) -> Path:
    """As it was taken."""
    return staging.taken / claim.id / "file" / claim.name


def _sealed_of(staging: Staging, claim: Claim) -> Path:
    return file_of(staging, claim).with_name(claim.name + SEALED)


def _kept(staging: Staging, claim: Claim) -> Path:
    """As it is now."""
    sealed = _sealed_of(staging, claim)
    return sealed if sealed.exists() else file_of(staging, claim)


def close_up(staging: Staging, claim: Claim, keys: Keyring) -> None:
    """Seals the file where it lies. Links, devices and empty files hold nothing to seal."""
    path = file_of(staging, claim)
    if os.path.lexists(path) and stat.S_ISREG(path.lstat().st_mode) and path.lstat().st_size:
        seal_file(path, _sealed_of(staging, claim), own_seal(keys, staging.tenant, claim.data_key))


def may_be_read(path: Path) -> bool:
    """A file that its program closed to everybody is opened again, if it is the platform's own user's."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
    except PermissionError:
        with suppress(PermissionError):
            path.chmod(0o600)
            return True
        return False
    return True


def with_new_key(staging: Staging, claim: Claim) -> Claim:
    """For a file that is still here as it was taken: what its key sealed of it is worth nothing without that key."""
    _sealed_of(staging, claim).unlink(missing_ok=True)
    return changed(staging, claim, data_key=new_id("fil"))


def content(staging: Staging, claim: Claim, keys: Callable[[], Keyring]) -> Path | SealedFile:
    """What is to be sent."""
    kept = _kept(staging, claim)
    return kept if kept == file_of(staging, claim) else SealedFile(kept, claim.name, staging.tenant, keys())


def size_of(staging: Staging, claim: Claim) -> int:
    kept = _kept(staging, claim)
    if kept != file_of(staging, claim):
        # What was damaged has no other size than its own.
        with suppress(Corrupt):
            return plain_size(kept)
    return kept.lstat().st_size


def changed(staging: Staging, claim: Claim, **fields: Any) -> Claim:
    """Whatever crashes from here on, the claim is found as it is now."""
    claim = replace(claim, **fields)
    replace_file(staging.taken / claim.id / "claim.json", json.dumps(asdict(claim)))
    return claim


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
    return claim if os.path.lexists(_kept(staging, claim)) else None


def file_away(staging: Staging, claim: Claim, report: dict[str, Any]) -> Path:
    """Where it lies now: below `done` or `failed`, in a folder named by its span, as in `out`. Of a link, a device or a
    folder only the report is kept: nobody but the platform must decide where a path below there leads."""
    top = staging.done if report["state"] == "completed" else staging.failed
    inner = [safe_name(part) for part in claim.path.split("/")[:-1]]
    folder = top.joinpath(claim.span.rpartition("/")[2], *inner)
    folder.mkdir(parents=True, exist_ok=True)
    kept = _kept(staging, claim)
    name = _report_in(folder, staging, claim, report)
    place = folder / (name if kept == file_of(staging, claim) else f"{name}{SEALED}")
    reach("manage_before_filing")
    if stat.S_ISREG(kept.lstat().st_mode):
        os.rename(kept, place)
        _begin_retention(place)
    reach("manage_after_filing")
    shutil.rmtree(staging.taken / claim.id, ignore_errors=True)
    return place


def _begin_retention(place: Path) -> None:
    """From now on, whatever time its program gave it. A file of another user's, who alone may do that, is copied."""
    try:
        os.utime(place, follow_symlinks=False)
    except PermissionError:
        # What nobody but its owner may read stays as it is.
        with suppress(PermissionError), place.open("rb") as file, replacing(place) as own:
            shutil.copyfileobj(file, own)


def _report_in(folder: Path, staging: Staging, claim: Claim, report: dict[str, Any]) -> str:
    """Leaves the report in the folder, and says what the file is to be called beside it. Nothing that is there is
    overwritten, but for this claim's own report, by its second name: a crash may have come between that and the file."""
    written = staging.taken / claim.id / "report.json"
    written.write_text(json.dumps(report, indent=2) + "\n")
    plain_name, own_name = claim.name, f"{claim.id}-{claim.name}"
    is_taken = any(os.path.lexists(folder / f"{plain_name}{ending}") for ending in ("", SEALED))
    if not is_taken and _linked(written, folder / f"{plain_name}{REPORT}"):
        return plain_name
    _linked(written, folder / f"{own_name}{REPORT}")
    return own_name


def _linked(written: Path, place: Path) -> bool:
    with suppress(FileExistsError):
        os.link(written, place, follow_symlinks=False)
    return os.path.samestat(written.lstat(), place.lstat())


def safe_name(name: str) -> str:
    """As a file of ours may be called, with its ending."""
    clean = os.fsencode(name).decode(errors="backslashreplace")
    if len(clean.encode()) <= MOST_NAME_BYTES:
        return clean
    stem, ending = os.path.splitext(clean)
    return stem.encode()[: MOST_NAME_BYTES // 2].decode(errors="ignore") + ending[-20:]
