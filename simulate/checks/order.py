"""I1: versions follow the log. I2: nothing of an import precedes its admission."""

from millrace.model.imports import REPLAY
from simulate.content import Chunk
from simulate.watch import Check, Turn, Violation


class VersionsInOrder(Check):
    """Each admission reserves from max(append time, last reserved + 1): dense where time stands still, never overlapping."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._last: dict[tuple[str, str], int] = {}

    def applied(self, turn: Turn) -> None:
        imp = turn.admitted
        if imp is None or imp.kind == REPLAY:
            return
        name = imp.tenant, imp.table
        expected = max(turn.at_us, self._last.get(name, 0) + 1)
        if imp.first_version != expected:
            raise Violation("versions", f"{imp.id} of {name} begins at {imp.first_version}, not at {expected}")
        self._last[name] = imp.first_version + imp.versions - 1


class PayloadAfterAck(Check):
    def appended(self, chunk: Chunk) -> None:
        seen = self.book.get(chunk.import_id)
        if seen is None:
            raise Violation("payload after ACK", f"chunk {chunk.number} of {chunk.import_id} precedes its admission")
        imp = seen.imp
        if chunk.definition not in self.world.definitions or chunk.definition != imp.definition:
            raise Violation("payload after ACK", f"{chunk} names another definition than {imp.definition}")
        if chunk.version != imp.first_version + chunk.number:
            raise Violation("payload after ACK", f"{chunk} does not carry its version")
