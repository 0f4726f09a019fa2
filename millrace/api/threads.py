"""Work that goes on until the server stops: each piece in a thread of its own, begun again after a failure."""

import threading
from collections.abc import Callable

from millrace.observe import log, observe

LONGEST_PAUSE_SECONDS = 5.0
JOIN_SECONDS = 10.0

Work = Callable[[threading.Event], None]


class Threads:
    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._at_work: set[str] = set()

    def start(self, name: str, work: Work) -> None:
        """`work` returns when the event is set. If it raises, it is called again after a pause."""
        thread = threading.Thread(target=self._keep_working, args=(name, work), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)
        log("thread_started", name_=name)

    def is_at_work(self, name: str) -> bool:
        return name in self._at_work

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)

    def _keep_working(self, name: str, work: Work) -> None:
        pause = 0.2
        while not self._stopping.is_set():
            try:
                self._at_work.add(name)
                work(self._stopping)
            except Exception as error:
                observe("trouble", kind=name, error=f"{type(error).__name__}: {error}"[:1000])
                self._at_work.discard(name)
                self._stopping.wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
