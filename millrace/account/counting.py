"""The ledger's rules: what facts say in, exact counts of an import and what is due for it out. Values only.

Folding by identity makes redelivery harmless (I4); nothing is due before all of it is durable (I5)."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from millrace.model.budget import Budget
from millrace.model.chunk import ChunkVerdict
from millrace.model.facts import ChunkJudged, Durable, Fact
from millrace.model.imports import ADMITTED, PROCESSING, STOPPING, Counts, Import, too_many_rejected
from millrace.model.ops.imports import HoldImport, PublishImport, SettleImport, StopImport
from millrace.model.sinks import ERROR_STORE

# By import; the second also by sink.
Verdicts = dict[str, list[ChunkVerdict]]
Places = dict[str, dict[str, set[int]]]
# An op to ask the controller for.
Due = PublishImport | SettleImport | HoldImport | StopImport


def by_import(facts: Iterable[Fact]) -> tuple[Verdicts, Places]:
    verdicts: Verdicts = defaultdict(list)
    places: Places = defaultdict(lambda: defaultdict(set))
    for fact in facts:
        match fact:
            case ChunkJudged(judged):
                for verdict in judged:
                    verdicts[verdict.import_id].append(verdict)
            case Durable(sink, chunks):
                for import_id, number in chunks:
                    places[import_id][sink].add(number)
    return verdicts, places


@dataclass(frozen=True, slots=True)
class Counted:
    """An import's counts, and the verdicts that are new or have changed."""

    counts: Counts
    new: tuple[ChunkVerdict, ...]
    changed: tuple[ChunkVerdict, ...]


def count(counts: Counts, known: Mapping[int, ChunkVerdict], verdicts: Iterable[ChunkVerdict]) -> Counted:
    """`known` holds the earlier verdicts on the same chunks."""
    chunks = dict(known)
    for verdict in verdicts:
        counts, chunks[verdict.number] = _counted(counts, chunks.get(verdict.number), verdict)
    new = tuple(verdict for number, verdict in chunks.items() if number not in known)
    return Counted(counts, new, tuple(v for number, v in chunks.items() if v != known.get(number, v)))


def _counted(counts: Counts, known: ChunkVerdict | None, verdict: ChunkVerdict) -> tuple[Counts, ChunkVerdict]:
    if known is None:
        return _moved(counts, verdict, 1), verdict
    same_bytes = known.checksum == verdict.checksum
    # The chunk was passed over first and judged later: the later verdict counts.
    if known.ignored > 0 and verdict.ignored == 0:
        judged = replace(verdict, failure=verdict.failure or known.failure)
        counts, known = _moved(_moved(counts, known, -1), judged, 1), judged
    if same_bytes or known.failure is not None:
        return counts, known
    # Neither verdict can be trusted, so the import fails.
    failure = f"Chunk {known.number} arrived twice with different bytes."
    return replace(counts, failed_chunks=counts.failed_chunks + 1), replace(known, failure=failure)


def _moved(counts: Counts, verdict: ChunkVerdict, by: int) -> Counts:
    return Counts(
        chunks=counts.chunks + by,
        read=counts.read + by * verdict.rows,
        accepted=counts.accepted + by * verdict.accepted,
        rejected=counts.rejected + by * verdict.rejected,
        ignored=counts.ignored + by * verdict.ignored,
        failed_chunks=counts.failed_chunks + by * (verdict.failure is not None),
    )


def has_settled(imp: Import, passed: Mapping[str, int], rejecting_chunks: Callable[[], int]) -> bool:
    """True when every chunk of the import has its verdict and every verdict is durable wherever it must be.

    `passed` says how far the validating queries have durably come in each raw-input partition."""
    if imp.is_over:
        return False
    if imp.state == STOPPING:
        if imp.markers is None or any(passed.get(partition, 0) <= offset for partition, offset in imp.markers.items()):
            return False
    elif imp.announced is None or imp.counts.chunks < imp.announced["chunks"]:
        return False
    if any(imp.durable.get(sink, 0) < imp.counts.chunks for sink in imp.sinks):
        return False
    if imp.counts.rejected == 0 or ERROR_STORE in imp.options.get("waived", ()):
        return True
    return imp.durable.get(ERROR_STORE, 0) >= rejecting_chunks()


def due(
    imp: Import,
    passed: Mapping[str, int],
    budget: Callable[[], Budget],
    rejecting_chunks: Callable[[], int],
    failure: Callable[[], str | None],
) -> Due | None:
    """What to ask for now: the end of an import that has settled, its publication if it is atomic, or a stop."""
    if has_settled(imp, passed, rejecting_chunks):
        awaits_publish = imp.publish == "atomic" and imp.state == PROCESSING
        return (PublishImport if awaits_publish else SettleImport)(
            imp.tenant,
            imp.id,
            counts=imp.counts,
            durable=imp.durable,
            failure=failure() if imp.counts.failed_chunks else None,
            budget=budget(),
        )
    under_way = imp.state in (ADMITTED, PROCESSING) and imp.counts.rejected > 0
    if under_way and not (allowed := budget()).holds and allowed.is_blown(imp.counts.read, imp.counts.rejected):
        return StopImport(imp.tenant, imp.id, error=too_many_rejected(imp.counts))
    return None
