"""The input of a client app whose agreement asks for encryption: sealed in `arrived`, and plain in `in` while the app runs.

Each file comes into `in` once, whenever a process is killed:
1. It is opened into a hidden file of `in` that is named by whom it was sealed for.
2. The sealed file is moved to `given`: from here on it counts as opened.
3. The hidden file gets its name. 4. The sealed one is removed.
What a run leaves behind goes back: 5. It is moved to `returned`, under a name that begins with whom it will be sealed for.
6. It is sealed into `arrived`. 7. It is removed from `returned`."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from millrace.beneath.folder import Folder, enter, is_plain
from millrace.beneath.trees import remove
from millrace.exchange.app_folders import Staging
from millrace.failpoint import reach
from millrace.model.errors import Corrupt, KeyGone
from millrace.model.names import new_id
from millrace.observe import observe
from millrace.seal.keyring import Keyring
from millrace.staging.arrivals import MOST_NAME_BYTES, fitting_name, other_name, own_as
from millrace.staging.sealed import FRAME_BYTES, SealedFile, hour_seal, make_safe, owner_in, write_sealed


def have_arrived(staging: Staging) -> bool:
    """Whether `give` has anything to do."""
    return any(any(_files(folder)) for folder in (staging.arrived, staging.given, staging.returned))


def give(staging: Staging, keys: Keyring) -> bool:
    """Puts what has arrived into `in`, and what nobody can open any more into `failed`. False if a file was left behind, for
    example because the disk is full: it is tried again later."""
    _seal_returned(staging, keys)
    for opened in sorted(_files(staging.given)):
        _show(staging, opened)
    arrived = sorted(_files(staging.arrived), key=lambda path: (path.stat().st_mtime_ns, path.name))
    return not [sealed for sealed in arrived if not _is_given(staging, sealed, keys)]


def _is_given(staging: Staging, sealed: Path, keys: Keyring) -> bool:
    try:
        _show(staging, _open(staging, sealed, keys))
    except (Corrupt, KeyGone) as lost:
        _tell(staging, f"{sealed.name} cannot be opened: {lost}")
        _give_up(staging, sealed)
    except OSError as failed:
        _tell(staging, f"{sealed.name} cannot be given: {failed}")
        return False
    return True


def _tell(staging: Staging, why: str) -> None:
    observe("trouble", kind="client_app", tenant=staging.tenant, error=why)


def take_back(staging: Staging, keys: Keyring) -> None:
    """Seals what is left in `in`, for the next run. Only while no program runs and nothing is being given."""
    for opened in sorted(_files(staging.given)):
        _show(staging, opened)
    staging.returned.mkdir(exist_ok=True)
    with enter(staging.inbox) as inbox:
        for name, status in inbox.entries():
            if fnmatchcase(name, _hidden("arr_*")):
                # The program may have made a folder with that name.
                with suppress(OSError):
                    inbox.unlink(name)
            # Folders and links that the program made there stay.
            elif not name.startswith(".") and is_plain(status) and len(os.fsencode(name)) <= MOST_NAME_BYTES:
                _return(staging, inbox, name)
    reach("staging_after_return")
    _seal_returned(staging, keys)


def _return(staging: Staging, inbox: Folder, name: str) -> None:
    place = staging.returned / f"{new_id('arr')}.{name}"
    with suppress(FileNotFoundError):
        inbox.move_out(name, place)  # 5
        # What another program of the tenant put in its place meanwhile is not worth keeping.
        if not is_plain(place.lstat()):
            with enter(staging.returned) as returned:
                remove(returned, place.name)


def _open(staging: Staging, sealed: Path, keys: Keyring) -> Path:
    owner = owner_in(sealed)
    with enter(staging.inbox) as inbox:
        try:
            _write_opened(staging.tenant, sealed, inbox, _hidden(owner), keys)  # 1
        except BaseException:
            # Otherwise half of it would stay there in plain.
            with suppress(FileNotFoundError):
                inbox.unlink(_hidden(owner))
            raise
    reach("staging_after_open")
    staging.given.mkdir(exist_ok=True)
    return sealed.rename(staging.given / f"{owner}.{fitting_name(sealed.name)}")  # 2


def _write_opened(tenant: str, sealed: Path, inbox: Folder, unfinished: str, keys: Keyring) -> None:
    with SealedFile(sealed, sealed.name, tenant, keys).open() as source:
        with suppress(FileNotFoundError):
            inbox.unlink(unfinished)
        with inbox.create(unfinished) as file:
            shutil.copyfileobj(source, file, FRAME_BYTES)
            own_as(inbox, file)
            make_safe(file, sealed.stat())


def _give_up(staging: Staging, sealed: Path) -> None:
    folder = staging.failed / "arrived"
    folder.mkdir(exist_ok=True)
    place = sealed.rename(folder / f"{new_id('arr')}-{fitting_name(sealed.name)}.sealed")
    os.utime(place)


def _show(staging: Staging, opened: Path) -> None:
    reach("staging_before_show")
    owner, _, name = opened.name.partition(".")
    # It has its name already, and the program may have taken it.
    with suppress(FileNotFoundError), enter(staging.inbox) as inbox:
        _call(inbox, _hidden(owner), name)  # 3
    reach("staging_after_show")
    opened.unlink()  # 4


def _call(folder: Folder, hidden: str, name: str) -> None:
    """Renames it to `name`, or to another name if that one is taken."""
    try:
        folder.rename_new(hidden, name)
    except FileExistsError:
        folder.rename_new(hidden, other_name(name))


def _seal_returned(staging: Staging, keys: Keyring) -> None:
    waiting = sorted(_files(staging.returned))
    if not waiting:
        return
    staging.arrived.mkdir(exist_ok=True)
    known = _owners(staging.arrived)
    for path in waiting:
        owner, _, name = path.name.partition(".")
        if owner not in known:
            unfinished = staging.arrived / f".{owner}.new"
            write_sealed(path, unfinished, hour_seal(keys, staging.tenant, owner))
            with enter(staging.arrived) as arrived:
                _call(arrived, unfinished.name, name)  # 6
        reach("staging_after_sealed")
        path.unlink()  # 7


def _owners(folder: Path) -> set[str]:
    found: set[str] = set()
    for path in _files(folder):
        with suppress(Corrupt):
            found.add(owner_in(path))
    return found


def _hidden(owner: str) -> str:
    return f".{owner}.partial"


def _files(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            yield from (Path(entry.path) for entry in entries if not entry.name.startswith("."))
    except FileNotFoundError:
        return
