"""A request to stop a process: made by any thread or by SIGINT and SIGTERM, awaited by the main loop.

A signal handler runs between two bytecodes of the main thread, which may hold any lock at that moment. So the handler takes
none: it sets a flag and writes one byte to a pipe, which wakes whoever waits."""

import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Made once and never taken back. `descriptor` becomes readable when it is made, for loops that wait for more."""

    def __init__(self) -> None:
        self._is_made = False
        self.descriptor, self._wake_end = os.pipe()
        os.set_blocking(self._wake_end, False)

    def make(self) -> None:
        """From any thread or signal handler."""
        self._is_made = True
        # A full pipe wakes whoever waits just as well.
        with suppress(BlockingIOError):
            os.write(self._wake_end, b"!")

    def is_made(self) -> bool:
        return self._is_made

    def wait(self, seconds: float) -> bool:
        """Returns whether the request is made, at the latest after so many seconds."""
        if not self._is_made:
            select.select([self.descriptor], [], [], seconds)
        return self._is_made

    def heed_signals(self) -> dict[signal.Signals, object]:
        """SIGINT and SIGTERM make the request from now on. Returns the handlers they had. Main thread only."""

        def stop(_number: int, _frame: FrameType | None) -> None:
            self.make()

        return {number: signal.signal(number, stop) for number in STOP_SIGNALS}

    def exit_within(self, seconds: float) -> None:
        """From now on the process ends so many seconds after the request, whatever it still waits for."""

        def end_late_process() -> None:
            select.select([self.descriptor], [], [])
            time.sleep(seconds)
            os._exit(1)

        threading.Thread(target=end_late_process, name="exit-within", daemon=True).start()

    @contextmanager
    def heeding_signals(self) -> Iterator[None]:
        """For the time of a block; in other threads than the main one it does nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = self.heed_signals()
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)  # type: ignore[arg-type]
