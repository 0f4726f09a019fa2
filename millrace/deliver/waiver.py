"""What someone gave up of a target's queue: all of the imports that had begun by then, also what comes of them later."""

from dataclasses import dataclass
from pathlib import Path

from millrace.model.names import is_import_id
from millrace.sink.contract import StagedGroup

WAIVED_FILE = "waived"
BEHIND_EVERY_ID = "~"


@dataclass(frozen=True, slots=True)
class Waiver:
    """Up to version `below`, of imports whose ids, which are ordered by time, are not behind `until`: a replay that is asked
    for later has the versions of the import it replays, but nobody gave it up."""

    below: int = 0
    until: str = BEHIND_EVERY_ID

    def covers(self, group: StagedGroup, version: int) -> bool:
        # What may go because of its age goes whatever was given up.
        if group.is_ageing or max(version, newest_version(group)) > self.below:
            return False
        return not any(is_import_id(import_id) and import_id > self.until for import_id, _ in group.chunks)

    def to_text(self) -> str:
        return f"{self.below} {self.until}"


def read_waiver(folder: Path) -> Waiver:
    try:
        below, _, until = (folder / WAIVED_FILE).read_text().partition(" ")
    except FileNotFoundError:
        return Waiver()
    return Waiver(int(below), until or BEHIND_EVERY_ID)


def newest_version(group: StagedGroup) -> int:
    versions = [chunk.version for chunk in group.file.chunks] if group.file else []
    return max(versions, default=group.version)
