"""Reads what an older Millrace parked as JSON files beside the pins, into the control store."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter

from millrace.exchange.places import Places
from millrace.exchange.queues import ParkedRow, Queues
from millrace.model.queues import BEHIND_EVERY_ID, Member, QueueKey, QueueRecord, QueueState, Waiver
from millrace.observe import observe

MEMBER, STATE, ANNOUNCED, WAIVED, RESUME = "member.json", "state.json", "told.json", "waived", "resume"
ITEM = ".item.json"


def import_parked_files(places: Places, queues: Queues) -> None:
    """A file goes once its content is a row. The next start goes on where this one was killed. What a power cut damaged is
    passed over: nothing else waits for it."""
    for folder in sorted(places.home.parked.glob("*/*/*/*")):
        items = sorted(folder.glob(f"*{ITEM}"))
        files = [path for name in (MEMBER, STATE, ANNOUNCED, WAIVED, RESUME) if (path := folder / name).exists()]
        if items or files:
            key = QueueKey(*folder.parts[-4:])
            rows = {path: row for path in items if (row := _row(key, path)) is not None}
            queues.restore(_record(folder, key), (folder / RESUME).exists(), list(rows.values()))
            for path in (*rows, *files):
                path.unlink()


def _record(folder: Path, key: QueueKey) -> QueueRecord:
    found, state = _json(folder / MEMBER), QueueState(**_json(folder / STATE))
    member = TypeAdapter(Member).validate_python(found) if found else None
    waiver = Waiver()
    with suppress(FileNotFoundError, ValueError):
        below, _, until = (folder / WAIVED).read_text().partition(" ")
        waiver = Waiver(int(below), until or BEHIND_EVERY_ID)
    return QueueRecord(key, state, member, waiver, _json(folder / ANNOUNCED), 0)


def _row(key: QueueKey, path: Path) -> ParkedRow | None:
    """Named VERSION-DIGEST.item.json; the version in it is another one where the item is a copy of a file."""
    place, _, digest = path.name.removesuffix(ITEM).partition("-")
    item = _json(path)
    if not item:
        observe("trouble", kind="sink", queue=str(key), error=f"{path.name} cannot be read.")
        return None
    file = item["group"]["file"] or {}
    size = 0
    for part in (file.get("path"), file.get("deleted_keys")):
        with suppress(FileNotFoundError):
            size += (path.parent / part.replace("/", "+")).stat().st_size if part else 0
    return ParkedRow(key, int(place), digest, item.pop("version"), size, orjson.dumps(item).decode())


def _json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = orjson.loads(path.read_bytes())
        return content
    except (FileNotFoundError, orjson.JSONDecodeError):
        return {}
