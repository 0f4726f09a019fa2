"""Lets other processes go first where all want the same cores."""

import os
from contextlib import suppress

AUTOGROUP = "/proc/self/autogroup"


def yield_to_others(nice: int) -> None:
    """Lowers the priority of this process and of those it starts.

    Linux may weigh whole sessions against each other; then `nice` counts only inside a session. Each process that `up` starts
    has a session of its own, so that session yields as well."""
    os.nice(nice)
    with suppress(OSError), open(AUTOGROUP, "w") as file:
        file.write(str(nice))
