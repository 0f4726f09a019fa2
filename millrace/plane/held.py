"""Sends held chunks to be judged again, tenant by tenant, once the keys of the tenant answer."""

import threading
import time
from dataclasses import replace

from millrace.exchange.held_chunks import Identity
from millrace.exchange.mailboxes import Exchange
from millrace.model.errors import MillraceError, Unavailable
from millrace.observe import log, observe
from millrace.plane.checkpoints import CheckpointWatch
from millrace.seal.keyring import Keyring
from millrace.wire.client import Appended, Appender
from millrace.wire.envelope import pack_chunk, understood, unpack_stamp
from millrace.wire.topics import RAW_INPUT, bulk_partitions, chunk_partition

QUERY = "validate-bulk"
LOOK_SECONDS = 1.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
CONFIRM_SECONDS = 150.0


class HeldChunkSender:
    """A chunk stays held until the query that reads it has durably passed it. If this process dies before, it is sent again,
    and counts once. If its key was out of reach again, it is held as another file, and sent again as well."""

    def __init__(self, exchange: Exchange, keyring: Keyring, appender: Appender, raw_partitions: int) -> None:
        self._held = exchange.held_chunks
        self._keyring = keyring
        self._appender = appender
        self._partitions = bulk_partitions(raw_partitions)
        self._checkpoint = CheckpointWatch(QUERY, exchange.places.checkpoint(QUERY), exchange.places.durable)
        self._sent: dict[tuple[str, str, Identity], Appended] = {}
        self._pauses: dict[str, float] = {}
        self._due: dict[str, float] = {}

    def start(self) -> None:
        threading.Thread(target=self._run, name="held-chunks", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            try:
                for tenant in self._held.tenants():
                    self.look(tenant)
            except OSError as error:
                observe("trouble", kind="keys", error=f"{type(error).__name__}: {error}"[:500])

    def look(self, tenant: str) -> None:
        """Each tenant by itself: a failure concerns no other one."""
        try:
            self._release(tenant)
            if time.monotonic() >= self._due.get(tenant, 0.0):
                self._send(tenant)
                self._pauses.pop(tenant, None)
        except Exception as error:
            pause = min(2 * self._pauses.get(tenant, FIRST_PAUSE_SECONDS / 2), LONGEST_PAUSE_SECONDS)
            self._pauses[tenant], self._due[tenant] = pause, time.monotonic() + pause
            observe("trouble", kind="keys", tenant=tenant, error=f"{type(error).__name__}: {error}"[:500])

    def _release(self, tenant: str) -> None:
        """The position is read first: what was held again is another file by now."""
        position = self._checkpoint.look(again=True)
        passed = position.ends.get(RAW_INPUT, {}) if position is not None else {}
        held = self._held.held(tenant)
        for key, appended in list(self._sent.items()):
            if key[0] == tenant and passed.get(str(appended.partition), 0) > appended.offset:
                del self._sent[key]
                if held.get(key[1]) == key[2]:
                    self._held.release(tenant, key[1])

    def _send(self, tenant: str) -> None:
        waiting = [(tenant, *one) for one in self._held.held(tenant).items() if (tenant, *one) not in self._sent]
        is_asked = False
        for key in waiting:
            header, payload = understood(RAW_INPUT, self._held.read(tenant, key[1]), unpack_stamp) or (None, b"")
            if header is None:
                self._held.release(tenant, key[1])
                continue
            if not is_asked and header.key is not None:
                self._ask(tenant, header.key)
                is_asked = True
            partition = chunk_partition(header.import_id, header.number, self._partitions)
            record = pack_chunk(replace(header, was_held=True), bytes(payload))
            sent = self._appender.append(RAW_INPUT, header.import_id.encode(), record, partition)
            self._sent[key] = sent.result(CONFIRM_SECONDS)
        if waiting:
            log("held_chunks_sent", tenant=tenant, chunks=len(waiting))

    def _ask(self, tenant: str, key: str) -> None:
        """Raises Unavailable while the keys are out of reach. Whatever else is wrong with a key, its chunk's verdict says."""
        try:
            self._keyring.ask(tenant, key)
        except Unavailable:
            raise
        except MillraceError:
            return
