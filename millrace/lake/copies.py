"""Whether a copy of a remote file is whole. A machine that lost power may have kept a part of a copy, or its length alone."""

import os
from collections import OrderedDict
from collections.abc import Callable

REMEMBERED = 10_000
_PARQUET = b"PAR1"


class CheckedCopies:
    """Each copy is looked at when it is used for the first time, and remembered."""

    def __init__(self) -> None:
        self._whole: OrderedDict[str, None] = OrderedDict()

    def is_whole(self, path: str, has_size: Callable[[int], bool]) -> bool:
        """False also if there is none."""
        try:
            size = os.stat(path).st_size
            if path in self._whole:
                return True
            if not (has_size(size) and _has_end(path, size)):
                return False
        except FileNotFoundError:
            return False
        self._whole[path] = None
        if len(self._whole) > REMEMBERED:
            self._whole.popitem(last=False)
        return True

    def forget(self, path: str) -> None:
        self._whole.pop(path, None)


def _has_end(path: str, size: int) -> bool:
    """Whether a Parquet file ends as it must."""
    if not path.endswith(".parquet"):
        return True
    with open(path, "rb") as file:
        file.seek(max(0, size - len(_PARQUET)))
        return file.read() == _PARQUET
