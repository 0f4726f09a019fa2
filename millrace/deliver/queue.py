"""The parking store: what is on its way to one target of one table, durable in files until the target has it.

An item is named by its version and its chunks, so that parking it again changes nothing. It has its own link to the rows:
no compaction and no vacuum of the table can take them away. Items leave in the order of their versions."""

import hashlib
import os
import shutil
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from millrace.deliver.waiver import WAIVED_FILE, Waiver, read_waiver
from millrace.exchange.places import Places
from millrace.lake.sidecar import StagedFile
from millrace.model.chunk import PUBLISH, ROWS
from millrace.model.names import chunk_id, new_id
from millrace.sink.contract import StagedGroup

_ITEM = ".item.json"
STATE_FILE, RESUME_FILE = "state.json", "resume"


@dataclass(frozen=True, slots=True)
class Item:
    """One group on its way. An item of a back-fill is a file of another sink: positions listed in the file `dead` are not
    rows of it, and what that sink had taken away up to `floor` stays away."""

    name: str
    group: StagedGroup
    version: int
    is_backfill: bool = False
    dead: str | None = None
    floor: int = 0

    @property
    def is_held(self) -> bool:
        return self.group.kind == ROWS and self.group.publish == "atomic"

    @property
    def rows(self) -> int:
        return 0 if self.group.file is None else self.group.file.rows + self.group.file.deleted_rows


@dataclass(slots=True)
class QueueState:
    """How the target is doing, for whoever asks: `parked_since` and `reason` while it takes nothing."""

    parked_since: float | None = None
    reason: str | None = None
    fault: str | None = None
    tries: int = 0
    next_try: float = 0.0
    last_version: int = 0
    refused_rows: int = 0
    most_rows: int | None = None
    """How many rows it is sent at once, where it did not take more in time."""
    budget_seconds: float | None = None
    """How long it may take, where the least that it can be sent took longer than usual."""


class Queue:
    """The items of one target. One process delivers from it; others may look."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = self._read_state()
        self._known: dict[str, Item] = {}

    def put(self, group: StagedGroup, table: Path, *, is_backfill: bool = False) -> None:
        """Durable when it returns. `table` is where the group's files are."""
        version = version_of(group)
        told = {"version": version, "is_backfill": is_backfill}
        self._put(f"{version:020d}-{_digest(group)}", group, table, told)

    def put_copied(self, name: str, group: StagedGroup, table: Path, dead: bytes | None, floor: int) -> None:
        """A file of the table as it stands, for a target that was not there when its rows came. It goes before all else, and
        is as old as this moment: who gives up what waits later gives this up, too."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if dead is not None:
            _write_whole(self.folder / f"{name}.dead", dead)
        copied = {"is_backfill": True, "dead": None if dead is None else f"{name}.dead", "floor": floor}
        self._put(f"{0:020d}-{name}", group, table, {"version": time.time_ns() // 1000, **copied})

    def _put(self, name: str, group: StagedGroup, table: Path, told: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if group.file is not None:
            for part in _parts(group.file):
                _link(table / part, self.folder / _flat(part))
        _write_whole(self.folder / f"{name}{_ITEM}", orjson.dumps({"group": _as_dict(group), **told}))

    def items(self) -> list[Item]:
        """What may be delivered now, oldest version first."""
        return deliverable(self.waiting())

    @property
    def holds_anything(self) -> bool:
        return any(True for _ in self.folder.glob(f"*{_ITEM}"))

    def path_of(self, part: str) -> Path:
        return self.folder / _flat(part)

    def done(self, items: Sequence[Item]) -> None:
        if not items:
            return
        for item in items:
            (self.folder / f"{item.name}{_ITEM}").unlink(missing_ok=True)
        kept = {_flat(part) for item in self.waiting() for part in _parts_of(item)}
        for item in items:
            for part in _parts_of(item):
                if _flat(part) not in kept:
                    self.path_of(part).unlink(missing_ok=True)

    def waiting(self) -> list[Item]:
        """Every item, held or not, oldest version first. Items never change, so each is read once."""
        found: dict[str, Item] = {}
        for path in sorted(self.folder.glob(f"*{_ITEM}")):
            with suppress(FileNotFoundError):
                found[path.name] = self._known.get(path.name) or self._read(path)
        self._known = found
        return list(found.values())

    def save_state(self) -> None:
        _write_whole(self.folder / STATE_FILE, orjson.dumps(asdict(self.state)))

    def was_asked_to_resume(self) -> bool:
        mark = self.folder / RESUME_FILE
        asked = mark.exists()
        mark.unlink(missing_ok=True)
        return asked

    @property
    def waiver(self) -> Waiver:
        return read_waiver(self.folder)

    @property
    def waived_below(self) -> int:
        """Items up to this version were given up, but for those of imports that began later."""
        return self.waiver.below

    def _read(self, path: Path) -> Item:
        data = orjson.loads(path.read_bytes())
        group = StagedGroup.from_dict(data.pop("group"))
        return Item(path.name.removesuffix(_ITEM), group, **data)

    def _read_state(self) -> QueueState:
        try:
            return QueueState(**orjson.loads((self.folder / STATE_FILE).read_bytes()))
        except (FileNotFoundError, orjson.JSONDecodeError):
            return QueueState()


def deliverable(waiting: Sequence[Item]) -> list[Item]:
    """Held rows only once the word to show them is there, too."""
    shown = {item.group.import_id for item in waiting if item.group.kind == PUBLISH}
    return [item for item in waiting if not item.is_held or item.group.import_id in shown]


def waive(folder: Path, below: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _write_whole(folder / WAIVED_FILE, Waiver(below, new_id("imp")).to_text().encode())


def resume(folder: Path) -> None:
    (folder / RESUME_FILE).touch()


def queue_facts(folder: Path) -> dict[str, Any]:
    """A queue as operators see it."""
    queue = Queue(folder)
    names = [path.name for path in folder.glob(f"*{_ITEM}")]
    # What is copied from another sink is as old as the table; it says nothing of how far behind the target is.
    oldest = min((version for name in names if (version := int(name[:20]))), default=None)
    lag = None if oldest is None else max(0.0, time.time() - oldest / 1e6)
    told = {
        "waiting": len(names),
        "bytes": parked_bytes(folder),
        "lag_seconds": lag,
        "waived_below": queue.waived_below,
    }
    return {**asdict(queue.state), **told}


def parked_bytes(folder: Path) -> int:
    """What lies in a queue, the rows' files counted as if nobody else held them."""
    size = 0
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):
            size += entry.stat().st_size
    return size


def where_staged(places: Places, group: StagedGroup) -> Path:
    """The folder in which the group's files were staged."""
    is_sealed = group.file is not None and group.file.sealed_by is not None
    return (places.staged if is_sealed else places.table)(group.tenant, group.table)


def version_of(group: StagedGroup) -> int:
    versions = [chunk.version for chunk in group.file.chunks] if group.file else []
    return min(versions, default=group.version)


def _digest(group: StagedGroup) -> str:
    said = [group.kind, *(chunk_id(*chunk) for chunk in group.chunks)]
    return hashlib.blake2b("\n".join(said).encode(), digest_size=12).hexdigest()


def _parts(file: StagedFile) -> Sequence[str]:
    return [part for part in (file.path, file.deleted_keys) if part]


def _parts_of(item: Item) -> Sequence[str]:
    parts = [] if item.group.file is None else list(_parts(item.group.file))
    return [*parts, *([item.dead] if item.dead else [])]


def _flat(part: str) -> str:
    return part.replace("/", "+")


def _as_dict(group: StagedGroup) -> dict[str, Any]:
    return {**asdict(group), "file": None if group.file is None else group.file.to_dict()}


def _link(source: Path, target: Path) -> None:
    """A second name for the same bytes; where the file system knows no such thing, a copy."""
    if target.exists():
        return
    try:
        os.link(source, target)
    except FileExistsError:
        pass
    except OSError:
        partial = target.with_suffix(".partial")
        shutil.copyfile(source, partial)
        partial.replace(target)


def _write_whole(path: Path, body: bytes) -> None:
    # The courier and whoever asks about the queue may write at the same moment.
    partial = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    partial.write_bytes(body)
    partial.replace(path)
