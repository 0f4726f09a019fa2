"""Sends held chunks to be judged again, tenant by tenant, once the keys of the tenant answer."""

import threading
import time

from millrace.exchange.mailboxes import Exchange
from millrace.model.errors import MillraceError, Unavailable
from millrace.observe import log, observe
from millrace.seal.keyring import Keyring
from millrace.wire.client import Appender
from millrace.wire.envelope import understood, unpack_stamp
from millrace.wire.topics import RAW_INPUT, bulk_partitions, chunk_partition

LOOK_SECONDS = 1.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
CONFIRM_SECONDS = 150.0


class HeldChunkSender:
    def __init__(self, exchange: Exchange, keyring: Keyring, appender: Appender, raw_partitions: int) -> None:
        self._exchange = exchange
        self._held = exchange.held_chunks
        self._keyring = keyring
        self._appender = appender
        self._partitions = bulk_partitions(raw_partitions)
        self._pauses: dict[str, float] = {}
        self._due: dict[str, float] = {}

    def start(self) -> None:
        threading.Thread(target=self._run, name="held-chunks", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            for tenant in self._held.tenants():
                if time.monotonic() >= self._due.get(tenant, 0.0):
                    self.look(tenant)

    def look(self, tenant: str) -> None:
        """Each tenant by itself: a failure concerns no other one."""
        try:
            self._send(tenant)
            self._pauses.pop(tenant, None)
            self._due.pop(tenant, None)
        except Exception as error:
            pause = self._pauses[tenant] = min(
                2 * self._pauses.get(tenant, FIRST_PAUSE_SECONDS / 2), LONGEST_PAUSE_SECONDS
            )
            self._due[tenant] = time.monotonic() + pause
            observe("trouble", kind="keys", tenant=tenant, error=f"{type(error).__name__}: {error}"[:500])

    def _send(self, tenant: str) -> None:
        """1. Ask for the key of the first one. 2. Kafka has a chunk again before it is dropped here: a crash between sends it
        twice, and it counts once."""
        sent = 0
        for name, record in self._held.held(tenant):
            header, _ = understood(RAW_INPUT, record, unpack_stamp) or (None, None)
            if header is not None:
                if not sent and header.key is not None:
                    self._ask(tenant, header.key)
                partition = chunk_partition(header.import_id, header.number, self._partitions)
                self._appender.append(RAW_INPUT, header.import_id.encode(), record, partition).result(CONFIRM_SECONDS)
                sent += 1
            self._held.drop(tenant, name)
        if sent:
            log("held_chunks_sent", tenant=tenant, chunks=sent)

    def _ask(self, tenant: str, key: str) -> None:
        """Raises Unavailable while the keys are out of reach. Whatever else is wrong with a key, its chunk's verdict says."""
        try:
            self._keyring.ask(tenant, key)
        except Unavailable:
            raise
        except MillraceError:
            return
