"""One file that is being sent: what the sending thread and the watching thread know about it."""

from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from millrace.client.documents import ImportDocument, is_over, waits_for
from millrace.client.errors import Problem
from millrace.model.errors import MillraceError


@dataclass(slots=True)
class Track:
    """Without a path it is standard input. `import_id` is set once the import is admitted."""

    name: str
    path: Path | None
    tenant: str
    table: str
    sent: int = 0
    import_id: str | None = None
    document: ImportDocument | None = None
    failure: MillraceError | None = None
    size: int | None = field(init=False)
    delivered: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        self.size = None if self.path is None else self.path.stat().st_size

    def progress(self, sent: int) -> None:
        self.sent = sent

    def fail(self, failure: MillraceError) -> None:
        """A refused body may still have an import; its end is waited for."""
        self.failure = failure
        if isinstance(failure, Problem) and failure.import_id:
            self.import_id = failure.import_id
        self.delivered.set()

    @property
    def state(self) -> str:
        if self.document is not None:
            return self.document["state"]
        return "failed" if self.failure is not None and self.import_id is None else "waiting"

    @property
    def waits_for(self) -> str:
        """In words, with what to do about it; empty if nothing is in its way."""
        return "" if self.document is None else waits_for(self.document)

    @property
    def is_over(self) -> bool:
        if self.document is not None and (is_over(self.document) or self.document["state"] == "held"):
            return True
        return self.failure is not None and self.import_id is None

    def shares(self) -> tuple[float, float, float]:
        """How much of the file is sent, judged and durable, each from 0 to 1."""
        if self.state == "completed":
            return 1.0, 1.0, 1.0
        sent = min(1.0, self.sent / self.size) if self.size else float(self.delivered.is_set())
        if self.document is None or not self.document["chunks"]["sent"]:
            return sent, 0.0, 0.0
        chunks = self.document["chunks"]
        durable = min((sink["durable_chunks"] for sink in self.document["sinks"].values()), default=0)
        return sent, sent * chunks["judged"] / chunks["sent"], sent * durable / chunks["sent"]

    def final_document(self) -> ImportDocument:
        """The import's document; for a file that never became an import, a document with the reason."""
        if self.document is not None:
            return self.document
        failure = self.failure or MillraceError("It was not sent.", code="not_sent")
        return {
            "id": self.import_id or "", "tenant": self.tenant, "table": self.table, "state": "failed",
            "rows": {"read": 0, "accepted": 0, "rejected": 0, "ignored": 0}, "chunks": {"sent": 0, "judged": 0}, "sinks": {},
            "bytes": self.sent, "file_name": self.name, "started_at": None, "ended_at": None,
            "error": {"code": failure.code, "message": failure.message, "remedy": failure.remedy},
        }  # fmt: skip
