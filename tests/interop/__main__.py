"""`python -m tests.interop [PART…]` runs the matrix, keeps its result and writes it into docs/delta.md. With parts of the
names of cells it runs these alone and keeps nothing. Exits 1 if a cell is not as it must be."""

import sys
import tempfile
import time
from pathlib import Path

from tests.interop.matrix import Matrix
from tests.interop.outcome import Cell
from tests.interop.readers import Engines
from tests.interop.result import PAGE, page_with, save


def main() -> int:
    begun, only = time.monotonic(), sys.argv[1:]

    def told(cell: Cell) -> None:
        print(f"{time.monotonic() - begun:4.0f} s  {'sound' if cell.is_sound else 'WRONG'}  {cell.name}", flush=True)
        if not cell.is_sound:
            said = {"": f"{cell.outcome} {cell.words}", **cell.readers}
            print("".join(f"        {who} {words}\n" for who, words in said.items() if words), end="", flush=True)

    with tempfile.TemporaryDirectory(prefix="millrace-interop-") as scratch, Engines(Path(scratch)) as engines:
        cells = Matrix(engines, Path(scratch), told, only).run()
        versions = engines.versions
    if not only:
        save(cells, versions)
        PAGE.write_text(page_with(PAGE.read_text(), cells, versions))
    wrong = sum(not cell.is_sound for cell in cells)
    print(f"{len(cells)} cells, {wrong} not as they must be, {time.monotonic() - begun:.0f} s")
    return 1 if wrong or not cells else 0


if __name__ == "__main__":
    sys.exit(main())
