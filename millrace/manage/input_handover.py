"""What a tenant's program finds in `in`, moved there and back by threads of their own: one tenant's files hold up no other's.

Only where the agreement asks for encryption, or did when the files arrived, is there anything to move."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime

from millrace.exchange.app_folders import Staging
from millrace.manage.tools import Tools
from millrace.model.names import new_id
from millrace.observe import observe
from millrace.seal.cipher import Seal
from millrace.staging.inputs import give, have_arrived, take_back
from millrace.staging.sealed import hour_seal

# Between two attempts where the first failed: whoever keeps the keys may be away.
PAUSE_SECONDS = 5.0
Ready = Future[Seal | None]


class InputHandover:
    """Used by the loop's thread alone; at most one thing is under way. `given_at`: what had arrived by then is there for the
    run that starts. `may_be_left`: what a program has left may lie there plain."""

    def __init__(self, tools: Tools, staging: Staging) -> None:
        self._tools = tools
        self._staging = staging
        self._before_start: tuple[bool, Ready] | None = None
        self._moving: Ready | None = None
        self._again_at = 0.0
        self.given_at = datetime.now(UTC)
        self.may_be_left = True

    @property
    def is_under_way(self) -> bool:
        return self._is_moving or self._before_start is not None

    def for_start(self, *, is_sealed: bool) -> Ready | None:
        """None: not yet. Then, once, what seals the run's logs, or why it cannot begin."""
        if self._is_moving:
            return None
        if self._before_start is None:
            self.given_at = datetime.now(UTC)
            if not is_sealed and not have_arrived(self._staging):
                return _nothing_to_do()
            self._before_start = is_sealed, self._submit(lambda: self._prepare(is_sealed))
        was_sealed, ready = self._before_start
        if not ready.done():
            return None
        self._before_start = None
        # The agreement may have changed meanwhile.
        return ready if was_sealed == is_sealed else None

    def while_running(self) -> None:
        """What arrives meanwhile is seen at once."""
        if self._may_move and have_arrived(self._staging):
            self._move(self._give)

    def note_end(self) -> None:
        self.may_be_left = True

    def forget_start(self) -> None:
        """Nobody starts any more: what was made ready for it is left over."""
        if self._before_start is not None and self._before_start[1].done():
            self._before_start, self.may_be_left = None, True

    def behind_run(self) -> None:
        """What the program left is sealed; once behind each run."""
        if self.may_be_left and self._may_move and self._before_start is None:
            self.may_be_left = False
            self._move(self._take_back)

    @property
    def _may_move(self) -> bool:
        return not self._is_moving and time.monotonic() > self._again_at

    def _move(self, work: Callable[[], None]) -> None:
        """Whatever fails, or is not all done, has its pause."""
        self._again_at = time.monotonic() + PAUSE_SECONDS
        self._moving = self._submit(work)

    def _give(self) -> None:
        if give(self._staging, self._tools.keys()):
            self._again_at = 0.0

    def _take_back(self) -> None:
        try:
            take_back(self._staging, self._tools.keys())
        except BaseException:
            self.may_be_left = True
            raise
        self._again_at = 0.0

    @property
    def _is_moving(self) -> bool:
        return self._moving is not None and not self._moving.done()

    def _prepare(self, is_sealed: bool) -> Seal | None:
        if have_arrived(self._staging):
            give(self._staging, self._tools.keys())
        return hour_seal(self._tools.keys(), self._staging.tenant, new_id("run")) if is_sealed else None

    def _submit(self, work: Callable[[], Seal | None]) -> Ready:
        future = self._tools.workers.submit(work)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, ended: Ready) -> None:
        failed = ended.exception()
        if failed is not None:
            observe(
                "trouble", kind="client_app", tenant=self._staging.tenant, error=f"{type(failed).__name__}: {failed}"
            )
        self._tools.wake()


def _nothing_to_do() -> Ready:
    ready = Ready()
    ready.set_result(None)
    return ready
