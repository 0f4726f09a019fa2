"""Every engine reads every table at every version, whoever else has written it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop.matrix import Matrix
from tests.interop.outcome import Cell
from tests.interop.readers import Engines
from tests.interop.result import load


def shown(cells: Sequence[Cell]) -> list[tuple[str, str, str]]:
    return [(cell.name, cell.outcome, cell.words) for cell in cells]


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_the_matrix_is_what_the_page_shows(tmp_path: Path) -> None:
    with Engines(tmp_path) as engines:
        cells = Matrix(engines, tmp_path).run()
    assert [cell for cell in cells if not cell.is_sound] == []
    assert shown(cells) == shown(load()[0]), "run `make interop`, and look at what it changes in docs/delta.md"
