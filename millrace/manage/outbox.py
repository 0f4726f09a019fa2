"""One tenant's `out` as its manager knows it: what was seen in, the paths that are finished or must be refused out."""

import time
from pathlib import Path

from millrace.manage.completion import Completion, Health, How, Seen, decide
from millrace.manage.watching import signature_of

# A program may leave any number of files; those that are not kept in mind are found later.
MOST_SEEN = 10_000


class Outbox:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: dict[str, Seen] = {}
        self._has_missed = False

    def __bool__(self) -> bool:
        return bool(self._seen)

    def note(self, seen: Seen) -> None:
        """What was only found says nothing new of a file that is known and has not changed."""
        before = self._seen.get(seen.path)
        if before is not None and seen.how is How.FOUND and before.signature == seen.signature:
            return
        self._seen.pop(seen.path, None)
        if len(self._seen) >= MOST_SEEN:
            self.miss()
        else:
            self._seen[seen.path] = seen

    def miss(self) -> None:
        """Some file is there that is not known here."""
        self._has_missed = True

    def has_to_look_again(self) -> bool:
        """There are files that were not kept in mind, and there is room for them; told once."""
        if not self._has_missed or len(self._seen) > MOST_SEEN // 2:
            return False
        self._has_missed = False
        return True

    def ripe(self, health: Health, most: int) -> tuple[list[str], list[str]]:
        """Those to take, in the order in which they were finished, and those to refuse; each is told once."""
        now = time.time()
        take: list[str] = []
        refuse: list[str] = []
        for seen in list(self._seen.values()):
            verdict = decide(seen, health, now)
            if verdict is Completion.WAIT or (verdict is Completion.TAKE and len(take) >= most):
                continue
            if verdict is Completion.TAKE and seen.how is How.FOUND and self._has_changed(seen):
                continue
            del self._seen[seen.path]
            (take if verdict is Completion.TAKE else refuse).append(seen.path)
        return take, refuse

    def _has_changed(self, seen: Seen) -> bool:
        signature = signature_of(self._root, seen.path)
        if signature is not None and signature == seen.signature:
            return False
        del self._seen[seen.path]
        if signature is not None:
            self._seen[seen.path] = Seen(seen.path, How.FOUND, time.time(), signature)
        return True
