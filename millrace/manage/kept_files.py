"""How much of a tenant's files is taken and not imported: a program could fill the disk through them."""

import time
from contextlib import suppress

from millrace.beneath.folder import enter
from millrace.beneath.trees import size
from millrace.exchange.app_folders import Staging
from millrace.observe import observe

LOOK_SECONDS = 1.0
# Of a core, for looking.
_SHARE = 0.05


class KeptFiles:
    def __init__(self, staging: Staging, most_bytes: int) -> None:
        self._staging = staging
        self._most = most_bytes
        self._look_at = 0.0
        self._is_full = False

    def is_full(self) -> bool:
        """Then nothing more is taken: it stays in `out`, where it counts as the program's."""
        begun = time.monotonic()
        if begun >= self._look_at:
            used = self._size()
            self._is_full = used >= self._most
            if self._is_full:
                self._warn(used)
            ended = time.monotonic()
            self._look_at = ended + max(LOOK_SECONDS, (ended - begun) / _SHARE)
        return self._is_full

    def _size(self) -> int:
        """Of files that wait for their import, and of those that could not be imported."""
        total = 0
        for path in (self._staging.taken, self._staging.failed):
            with suppress(FileNotFoundError), enter(path) as folder:
                total += size(folder)
        return total

    def _warn(self, used: int) -> None:
        why = (
            f"its files that are not imported take {used:,} bytes and may take {self._most:,} (MILLRACE_APPS__KEPT_MB); "
            "no more are taken from `out` until some are imported, or removed from `failed`"
        )
        observe("trouble", kind="client_app", tenant=self._staging.tenant, error=why)
