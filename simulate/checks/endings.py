"""I4 and I5: one verdict for every row, counted once; an end is announced once, when all it says is so."""

from collections.abc import Iterator

from millrace.model.chunk import ROWS
from millrace.model.imports import ALTER, CANCELLED, COMPLETED, TRUNCATE
from millrace.model.ops.imports import CancelImport
from simulate.content import Judgement, judge
from simulate.sinks import TableSink
from simulate.watch import Check, Seen, Turn, Violation


class EndIsTrue(Check):
    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._ended: set[str] = set()
        self._cancelled: set[str] = set()

    def applied(self, turn: Turn) -> None:
        if isinstance(turn.op, CancelImport) and not turn.is_refused:
            self._cancelled.add(turn.op.subject)
        ended = turn.ended
        if ended is None:
            return
        if ended.id in self._ended:
            raise Violation("END once", f"{ended.id} ended twice")
        self._ended.add(ended.id)
        if ended.id in self.book:
            self._check(self.book[ended.id])

    def _check(self, seen: Seen) -> None:
        self._check_counts(seen)
        if seen.final == COMPLETED:
            self._check_complete(seen)
        if seen.final == CANCELLED and seen.imp.id not in self._cancelled:
            raise Violation("END is true", f"{seen.imp.id} is cancelled, and nobody asked for it")
        self._check_rejects(seen)
        for name in seen.sinks:
            self._check_sink(seen, self.world.sinks[name][seen.imp.tenant, seen.imp.table])

    def _check_counts(self, seen: Seen) -> None:
        counts, of = seen.counts, seen.judged.values()
        assert counts is not None
        if counts.read != counts.accepted + counts.rejected + counts.ignored:
            raise Violation("one verdict", f"{seen.imp.id}: {counts} does not add up")
        expected = sum(v.accepted for v in of), sum(v.rejected for v in of)
        if (counts.accepted, counts.rejected) != expected:
            raise Violation("one verdict", f"{seen.imp.id}: {counts}, but (accepted, rejected) is {expected}")
        if counts.read > sum(len(chunk.rows) for chunk in seen.chunks.values()):
            raise Violation("one verdict", f"{seen.imp.id}: {counts} is more than was sent")

    def _check_complete(self, seen: Seen) -> None:
        imp, counts = seen.imp, seen.counts
        assert counts is not None
        there = [number for number, chunk in seen.chunks.items() if chunk.kind != "publish"]
        if seen.announced is None or len(there) != seen.announced:
            raise Violation("END is true", f"{imp.id} has {len(there)} of {seen.announced} chunks")
        if counts.ignored or any(number not in seen.judged for number in there):
            raise Violation("END is true", f"{imp.id} is completed, and not all of it was judged: {counts}")
        budget = self.world.definitions[imp.definition].table.budget
        if budget.rows is not None and counts.rejected > budget.rows:
            raise Violation("budget", f"{imp.id} is completed with {counts.rejected} rejected rows")
        if budget.percent is not None and counts.rejected * 100 > budget.percent * counts.read:
            raise Violation("budget", f"{imp.id} is completed with {counts.rejected} of {counts.read} rejected")
        if counts.read and not counts.accepted:
            raise Violation("END is true", f"{imp.id} is completed, and no row was accepted")

    def _check_rejects(self, seen: Seen) -> None:
        kept = self.world.errors.rows.get(seen.imp.id, {})
        for number, found in self._judged(seen):
            if any(row not in kept for row in found.rejected):
                raise Violation("END is true", f"{seen.imp.id} has ended, and rejects of chunk {number} are not kept")

    def _check_sink(self, seen: Seen, sink: TableSink) -> None:
        """Read at the moment of the end, it shows every accepted row, or one that beats it."""
        imp, definition = seen.imp, self.world.definitions[seen.imp.definition]
        if imp.kind == ALTER and sink.revision < definition.revision:
            raise Violation("END is true", f"{imp.id} has ended, and the sink is at revision {sink.revision}")
        if imp.kind == TRUNCATE and sink.floor < imp.first_version:
            raise Violation("END is true", f"{imp.id} has ended, and the table was not emptied")
        if imp.publish == "atomic" and seen.final != COMPLETED:
            return
        for number, found in self._judged(seen):
            version = imp.first_version + number
            for place, row in found.accepted if version > sink.floor else ():
                key = row.key if definition.table.primary_key else (imp.id, number, place)
                stored = sink.stored.get(key)
                if stored is None or stored.rank < (version, place):
                    raise Violation(
                        "END is true", f"{imp.id} has ended, and {row} of chunk {number} is not in the sink"
                    )

    def _judged(self, seen: Seen) -> Iterator[tuple[int, Judgement]]:
        definition = self.world.definitions[seen.imp.definition]
        for number, verdict in seen.judged.items():
            chunk = seen.chunks[number]
            if chunk.kind == ROWS and not verdict.ignored:
                yield number, judge(chunk, definition)

    def over(self) -> None:
        for seen in self.book.values():
            self._check_counts(seen)
