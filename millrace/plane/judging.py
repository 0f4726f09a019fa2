"""Records of raw-input in, judged chunks out, in their order. What cannot be read now is held, what kills a worker is set
apart: neither keeps the chunks behind it waiting."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millrace.exchange.mailboxes import Exchange
from millrace.failpoint import die_if_poisoned
from millrace.model.chunk import ROWS, ChunkHeader
from millrace.model.errors import Corrupt, KeyGone, Unavailable
from millrace.model.table import Definition
from millrace.observe import observe
from millrace.plane.checkpoints import Stops
from millrace.plane.isolate import SECONDS, UnjudgedChunk, doomed_after, judge_apart
from millrace.seal.keyring import Keyring
from millrace.validate.judge import JudgedChunk, fail, ignore, judge
from millrace.wire.envelope import understood, unpack_rows, unpack_stamp
from millrace.wire.topics import RAW_INPUT

# Of plain rows that one process apart is given at a time: this process holds them, too.
APART_BYTES = 16 << 20


class ReadChunk(NamedTuple):
    """`judged` is None for a change of the table itself: there is nothing to judge."""

    header: ChunkHeader
    definition: Definition
    judged: JudgedChunk | None


@dataclass(frozen=True)
class ChunkJudge:
    """`is_cautious`: a task that runs again may hold a chunk that kills its worker."""

    exchange: Exchange
    keyring: Keyring
    stops: Stops
    is_cautious: bool

    def read(self, records: Iterable[bytes]) -> Iterator[ReadChunk]:
        if not self.is_cautious:
            yield from (_judged(found) for found in self._opened(records))
            return
        together: list[ReadChunk | UnjudgedChunk] = []
        size = 0
        for one in self._opened(records):
            together.append(one)
            size += len(one.body) if isinstance(one, UnjudgedChunk) else 0
            if size >= APART_BYTES:
                yield from _judged_apart(together)
                together, size = [], 0
        yield from _judged_apart(together)

    def _opened(self, records: Iterable[bytes]) -> Iterator[ReadChunk | UnjudgedChunk]:
        for record in records:
            header, payload = understood(RAW_INPUT, record, unpack_stamp) or (None, memoryview(b""))
            if header is not None:
                found = self._open(header, payload, record)
                if found is not None:
                    yield found

    def _open(self, header: ChunkHeader, payload: memoryview, record: bytes) -> ReadChunk | UnjudgedChunk | None:
        """None if the chunk is held."""
        definition = self.exchange.definitions.read(header.definition)
        if header.kind != ROWS:
            return ReadChunk(header, definition, None)
        # A first run may have passed on the rows of a chunk that was held by the second one: a stop comes too late for it.
        if not header.was_held and self.stops.include(header.import_id):
            return ReadChunk(header, definition, ignore(header, definition))
        if header.key is not None and not header.was_held and self.exchange.held_chunks.has_any(definition.tenant):
            self._hold(header, definition, record)
            return None
        try:
            body = unpack_rows(header, payload, lambda sealed: opened(header, sealed, definition, self.keyring))
        except (Corrupt, KeyGone) as error:
            return ReadChunk(header, definition, fail(header, b"", definition, str(error)))
        except Unavailable as error:
            observe("trouble", kind="keys", tenant=definition.tenant, error=str(error)[:500])
            self._hold(header, definition, record)
            return None
        if definition.table.keep_raw_days is not None:
            self._keep_raw(header, definition, record)
        return UnjudgedChunk(header, body, definition)

    def _keep_raw(self, header: ChunkHeader, definition: Definition, record: bytes) -> None:
        """Nothing needs the copy but what-ifs, so a disk that does not take it stops no import."""
        tenant, table = definition.tenant, definition.table.name
        try:
            kept = self.exchange.raw_chunks
            kept.keep(tenant, table, header.import_id, header.number, header.version, record)
        except OSError as error:
            observe("trouble", kind="raw_chunks", error=f"{tenant}/{table}: {error}"[:500])

    def _hold(self, header: ChunkHeader, definition: Definition, record: bytes) -> None:
        self.exchange.held_chunks.hold(definition.tenant, header.import_id, header.number, record)


def _judged_apart(found: Sequence[ReadChunk | UnjudgedChunk]) -> Iterator[ReadChunk]:
    apart = iter(judge_apart([one for one in found if isinstance(one, UnjudgedChunk)]))
    for one in found:
        yield ReadChunk(one.header, one.definition, next(apart)) if isinstance(one, UnjudgedChunk) else one


def _judged(found: ReadChunk | UnjudgedChunk) -> ReadChunk:
    if isinstance(found, ReadChunk):
        return found
    die_if_poisoned(found.body)
    with doomed_after(SECONDS):
        return ReadChunk(found.header, found.definition, judge(found.header, found.body, found.definition))


def opened(header: ChunkHeader, payload: memoryview, definition: Definition, keyring: Keyring) -> bytes | memoryview:
    if header.key is None:
        return payload
    seal = keyring.seal(definition.tenant, definition.table.name, header.key, header.import_id)
    return seal.open(payload, str(header.number))
