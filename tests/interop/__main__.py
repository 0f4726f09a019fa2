"""`python -m tests.interop [FOLDER]` runs the matrix, keeps its result and writes it into docs/delta.md. Exits 1 if a cell
is not as it must be."""

import sys
import tempfile
import time
from pathlib import Path

from tests.interop.matrix import Matrix, clean
from tests.interop.readers import Engines
from tests.interop.result import PAGE, page_with, save


def main() -> int:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millrace-interop-") as scratch:
        folder = clean(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch) / "run")
        with Engines(folder) as engines:
            cells = Matrix(engines, folder).run()
            versions = engines.versions
    save(cells, versions)
    if PAGE.exists():
        PAGE.write_text(page_with(PAGE.read_text(), cells, versions))
    for cell in cells:
        if not cell.is_sound or cell.words:
            print(f"{cell.name}: {cell.outcome} {cell.words}")
            for reader, words in cell.readers.items():
                if words:
                    print(f"    {reader}: {words}")
    wrong = sum(not cell.is_sound for cell in cells)
    seconds = time.monotonic() - begun
    print(f"{len(cells)} cells, {wrong} not as they must be, {seconds:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
