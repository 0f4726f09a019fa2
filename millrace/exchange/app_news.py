"""What is to be announced about runs of client apps: a run has started, or how it ended.

The ingestion managers write; the server takes each note, announces it as an event and removes it. A note has the id that its
event gets, so a note that is written or taken twice gives one event. If a note is lost, nobody is told of that start or end;
the record of the run still has it."""

from dataclasses import asdict, dataclass
from typing import Any

import orjson

from millrace.atomic import replace_file
from millrace.exchange.home import Home

STARTED = "started"
MOST_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class AppNote:
    """`what`: the last word of the event's type. `data`: the event's."""

    tenant: str
    run: str
    what: str
    data: dict[str, Any]

    @property
    def id(self) -> str:
        """One for the start of a run and one for its end, however it ended."""
        return f"{self.run}.{STARTED if self.what == STARTED else 'ended'}"


@dataclass(frozen=True, slots=True)
class AppNews:
    home: Home

    def put(self, note: AppNote) -> None:
        replace_file(self.home.app_news / f"{note.id}.json", orjson.dumps(asdict(note)), mode=0o600)

    def waiting(self) -> list[AppNote]:
        """The oldest runs first, and of each run its start first. A file that cannot be read is removed."""
        found = []
        for path in sorted(self.home.app_news.glob("run_*.json"))[:MOST_AT_ONCE]:
            try:
                found.append(AppNote(**orjson.loads(path.read_bytes())))
            except FileNotFoundError:
                continue
            except (ValueError, TypeError):
                path.unlink(missing_ok=True)
        return sorted(found, key=lambda note: (note.run, note.what != STARTED))

    def remove(self, note: AppNote) -> None:
        (self.home.app_news / f"{note.id}.json").unlink(missing_ok=True)
