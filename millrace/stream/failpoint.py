"""Where fault tests make a worker die: on a chunk that holds the text the environment names. Off otherwise."""

import os
import signal

_POISON = os.environ.get("MILLRACE_POISON", "").encode()


def die_if_poisoned(body: bytes) -> None:
    if _POISON and _POISON in body:
        os.kill(os.getpid(), signal.SIGKILL)
