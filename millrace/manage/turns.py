"""Who may go next, where threads must act in the order in which their work was handed to them."""

import threading


class Turns:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._given = 0
        self._done: set[int] = set()
        self._next = 0

    def take_number(self) -> int:
        with self._changed:
            self._given += 1
            return self._given - 1

    def wait(self, number: int) -> None:
        """Until all numbers before are through."""
        with self._changed:
            self._changed.wait_for(lambda: self._next >= number)

    def through(self, number: int) -> None:
        with self._changed:
            if number >= self._next:
                self._done.add(number)
            while self._next in self._done:
                self._done.remove(self._next)
                self._next += 1
            self._changed.notify_all()
