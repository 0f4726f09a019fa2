"""Checksums of a key file's pages: arrays in, one sum per page out, and later the pages compared with their sums before their
first use. So a large file is never read only to check it. One changed bit always changes the sum of its page.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

PAGE_BYTES = 4096
_UNITS = PAGE_BYTES // 4
# Pages whose sums are made together: their products fit into the processor's cache.
_AT_ONCE = 64

U64 = npt.NDArray[np.uint64]
Units = npt.NDArray[np.uint32]
Pages = npt.NDArray[np.intp]


def _spread(count: int) -> U64:
    """Odd numbers that look random, the same ones always (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))) | np.uint64(1)


_WEIGHTS = _spread(_UNITS)
_PLACE = np.uint64(0xD1B54A32D192ED03)


class DamagedKeys(Exception):
    """A page of a key file is not what was written."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is damaged")
        self.name = name


def page_count(size: int) -> int:
    return -(-size // PAGE_BYTES)


def units_of(values: npt.NDArray[np.generic]) -> Units:
    return np.ascontiguousarray(values).view(np.uint32)


def page_sums(units: Units, first_page: int = 0) -> U64:
    """The sums of consecutive pages; the last may be shorter than a page."""
    sums = np.empty(-(-len(units) // _UNITS), dtype=np.uint64)
    whole = len(units) // _UNITS
    pages = units[: whole * _UNITS].reshape(-1, _UNITS)
    for start in range(0, whole, _AT_ONCE):
        some = pages[start : start + _AT_ONCE]
        sums[start : start + len(some)] = some @ _WEIGHTS
    rest = units[whole * _UNITS :]
    if len(rest):
        sums[-1] = rest @ _WEIGHTS[: len(rest)]
    return _placed(sums, np.arange(first_page, first_page + len(sums)))


def _placed(sums: U64, pages: Pages) -> U64:
    """A page in the place of another one is no good either."""
    with np.errstate(over="ignore"):
        return sums + pages.astype(np.uint64) * _PLACE


class PageSums:
    """Sums of a section that is written piece by piece."""

    def __init__(self) -> None:
        self._rest: Units = np.empty(0, dtype=np.uint32)
        self._sums: list[U64] = []
        self._pages = 0

    def add(self, values: npt.NDArray[np.generic]) -> None:
        units = units_of(values)
        if len(self._rest):
            units = np.concatenate([self._rest, units])
        whole = len(units) // _UNITS * _UNITS
        self._sums.append(page_sums(units[:whole], self._pages))
        self._pages += whole // _UNITS
        self._rest = units[whole:].copy()

    def finish(self) -> U64:
        return np.concatenate([*self._sums, page_sums(self._rest, self._pages)])


class CheckedPages:
    """The sections of a key file that is in use, and which of their pages were found good. `reads` counts these."""

    def __init__(self, name: str, sections: Mapping[str, npt.NDArray[np.generic]], sums: U64) -> None:
        self._name = name
        self._sections: dict[str, tuple[Units, U64, npt.NDArray[np.bool_], int]] = {}
        self.reads = 0
        for section, values in sections.items():
            count = page_count(values.nbytes)
            good = np.zeros(count, dtype=bool)
            self._sections[section] = values.view(np.uint32), sums[:count], good, values.itemsize
            sums = sums[count:]

    def check_all(self) -> None:
        for section, (_, sums, _, _) in self._sections.items():
            self.check_pages(section, np.arange(len(sums)))

    def check_range(self, section: str, first: int, end: int) -> None:
        """Rows from `first` to before `end`."""
        size = self._sections[section][3]
        self.check_pages(section, np.arange(first * size // PAGE_BYTES, page_count(end * size)))

    def check_rows(self, section: str, rows: npt.NDArray[np.integer]) -> None:
        """Rows in any order."""
        if len(rows):
            size = self._sections[section][3]
            self.check_pages(section, rows // (PAGE_BYTES // size))

    def check_pages(self, section: str, pages: npt.NDArray[np.integer]) -> None:
        units, sums, good, _ = self._sections[section]
        new = pages[~good[pages]]
        if not len(new):
            return
        wanted = np.unique(new)
        whole = len(units) // _UNITS
        table = units[: whole * _UNITS].reshape(-1, _UNITS)
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            inner = some[some < whole]
            found = table[inner] @ _WEIGHTS
            if len(inner) < len(some):
                rest = units[whole * _UNITS :]
                found = np.append(found, rest @ _WEIGHTS[: len(rest)])
            if not np.array_equal(_placed(found, some), sums[some]):
                raise DamagedKeys(self._name)
        good[wanted] = True
        self.reads += len(wanted)
