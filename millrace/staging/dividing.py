"""The files of `in` divided among the replicas of a batch app. Each replica has a folder of its own as its `in`.

A file is claimed by a rename: it is in `in`, or with exactly one replica, whenever a process is killed. What a replica leaves
returns to `in`: when its run has ended, or before the next one begins. Hidden files are uploads that are not whole yet, and
links are never moved."""

import heapq
import os
import stat
from contextlib import suppress

from millrace.beneath.folder import Folder, enter, hold
from millrace.beneath.trees import size
from millrace.exchange.app_folders import PRIVATE, Staging, own_folder
from millrace.failpoint import reach
from millrace.staging.arrivals import other_name

# A folder that a run cannot look through in moments is not divided at once: the rest is there for the next one.
MOST_DIVIDED = 100_000


def divide(staging: Staging, replicas: int, owner: int | None, *, shared: bool = False) -> None:
    """Gives the files of `in` to the replicas, so that each gets about the same number of bytes. What replicas have claimed
    already stays theirs, but for replicas that do not exist any more."""
    staging.claims.mkdir(mode=PRIVATE, exist_ok=True)
    if owner is not None:
        os.chown(staging.claims, 0, owner)
        staging.claims.chmod(0o750)
    _return_from(staging, [name for name in _replicas(staging) if int(name) >= replicas])
    loads: list[tuple[int, int]] = []
    with hold(staging.claims) as claims, enter(staging.inbox) as inbox:
        for number in range(replicas):
            with own_folder(claims, str(number), owner, shared=shared) as own:
                loads.append((size(own), number))
        heapq.heapify(loads)
        for name, weight in _divisible(inbox):
            load, number = heapq.heappop(loads)
            # What cannot be moved, such as a folder that nobody may write, is not divided.
            with suppress(OSError), claims.folder(str(number)) as own:
                _move(inbox, name, own)
                reach("staging_after_claim")
            heapq.heappush(loads, (load + weight, number))


def return_claims(staging: Staging) -> list[str]:
    """Puts what replicas have claimed and left back into `in`. Only while none of them runs. What cannot be moved stays with
    its replica, and holds up nothing else: why."""
    return _return_from(staging, _replicas(staging))


def _return_from(staging: Staging, replicas: list[str]) -> list[str]:
    stuck: list[str] = []
    if not replicas:
        return stuck
    with hold(staging.claims) as claims, enter(staging.inbox) as inbox:
        for replica in replicas:
            # The program may have put something else in the place of a file meanwhile.
            with suppress(FileNotFoundError), claims.folder(replica) as own:
                for name, _ in own.entries():
                    try:
                        _move(own, name, inbox)
                    except FileNotFoundError:
                        continue
                    except OSError as failed:
                        stuck.append(str(failed))
            reach("staging_after_return_claims")
            with suppress(OSError):
                claims.rmdir(replica)
    return stuck


def _replicas(staging: Staging) -> list[str]:
    try:
        return sorted(name for name in os.listdir(staging.claims) if name.isdigit())
    except FileNotFoundError:
        return []


def _divisible(inbox: Folder) -> list[tuple[str, int]]:
    """The largest first: so the shares are nearly equal."""
    found = []
    for name, status in inbox.first(MOST_DIVIDED, lambda one: not one.startswith(".")):
        if stat.S_ISREG(status.st_mode):
            found.append((name, status.st_size + 1))
        elif stat.S_ISDIR(status.st_mode):
            with suppress(OSError), inbox.folder(name) as inner:
                found.append((name, size(inner) + 1))
    return sorted(found, key=lambda one: (-one[1], one[0]))


def _move(source: Folder, name: str, target: Folder) -> None:
    """Under its name, or under another one if that is taken."""
    try:
        source.move_to(name, target, name)
    except FileExistsError:
        source.move_to(name, target, other_name(name))
