"""How far a tenant's schedule has been followed, over restarts: a moment in, the same moment out."""

import json
from datetime import UTC, datetime
from pathlib import Path


class Followed:
    """What happened before the tenant was first seen is nobody's fault."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.until = datetime.fromisoformat(json.loads(path.read_text())["handled_until"])
        except (OSError, ValueError, KeyError):
            self.set(datetime.now(UTC))

    def set(self, until: datetime) -> None:
        """Written before the run begins: one that a crash cuts off is not begun again, the next one takes its input."""
        self.until = until
        partial = self._path.with_suffix(".new")
        partial.write_text(json.dumps({"handled_until": until.isoformat()}))
        partial.replace(self._path)
