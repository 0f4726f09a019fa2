"""Says on standard error what `millrace up` does while it starts and stops: a line for each step, with its seconds."""

import sys
import time

from millrace.embed.supervisor import Event, Happening


class UpProgress:
    """Also in a log: whoever starts a platform should see where it is. Standard output has only `ready URL`, for scripts."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._since: dict[str, float] = {}

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def all_ready(self) -> None:
        self.say(f"everything is ready after {time.monotonic() - self._begun:.1f} s")

    def tell(self, event: Event) -> None:
        """What the supervisor saw of a child."""
        now = time.monotonic()
        took = f"after {now - self._since.get(event.child, now):.1f} s"
        match event.happening:
            case Happening.STARTED:
                self._since[event.child] = now
                self.say(f"{event.child}: starting")
            case Happening.READY:
                self.say(f"{event.child}: ready {took}")
            case Happening.STOPPING:
                self._since[event.child] = now
                self.say(f"{event.child}: stopping")
            case Happening.STOPPED:
                self.say(f"{event.child}: stopped {took}")
            case Happening.DIED | Happening.LATE:
                again = "" if event.retry_seconds is None else f"; starting it again in {event.retry_seconds:g} s"
                self.say(f"{event.child} {event.happening} (code {event.exit_code}){again}")
