"""K5: all cells of a stored row come from the one sent row that it names."""

import numpy as np
import numpy.typing as npt
import polars as pl

from checker import rows
from checker.dump import Document
from checker.findings import Findings
from checker.flavours import EARLY
from checker.imported import Imported
from checker.model import Model
from checker.shapes import DEFAULT, FIRST

Mask = npt.NDArray[np.bool_]
FIRST_NAMES = tuple(name for name, _ in FIRST)


def check(model: Model) -> Findings:
    found = Findings("K5", "torn row")
    flavour = model.rows.select("file", "row", "flavour")
    for reader in model.dump.readers:
        for frame in model.dump.of_reader(reader).values():
            whole = rows.named(frame).join(flavour, on=["file", "row"])
            for (file,), part in whole.partition_by("file", as_dict=True).items():
                imported = model.by_file.get(int(str(file)))
                if imported is not None:
                    _cells(model, imported, model.files[int(str(file))], part, found)
    return found


def _cells(model: Model, imported: Imported, file: Document, stored: pl.DataFrame, found: Findings) -> None:
    added = file["added"]
    expected = rows.cells(stored, model.dump.run["canaries"].get(imported.tenant, ""), added)
    wrong = np.zeros(stored.height, bool)
    for name in (*FIRST_NAMES, *added):
        wrong |= _differs(stored, name, expected[name])
    for name in stored.columns:
        if name.startswith("x") and name not in added:
            wrong |= _was_invented(imported, file, stored, name)
    torn = stored.filter(pl.Series(wrong))
    found.none_of(torn.select(FIRST_NAMES), stored.height, f"torn row of {imported.id}")


def _differs(stored: pl.DataFrame, name: str, expected: pl.Series) -> Mask:
    if name not in stored.columns:
        return np.ones(stored.height, bool)
    return (~stored[name].cast(expected.dtype).eq_missing(expected)).to_numpy()


def _was_invented(imported: Imported, file: Document, stored: pl.DataFrame, name: str) -> Mask:
    """A column that the file does not have is null or its default; early rows carry one such column."""
    cell = stored[name].cast(pl.Int64)
    if name not in imported.shape.names:
        # The row is older than the column: how its absence is shown is the table's business.
        right = cell.is_null() | (cell == DEFAULT).fill_null(False)
    else:
        right = cell.eq_missing(
            pl.repeat(imported.shape.column(name).default, stored.height, dtype=pl.Int64, eager=True)
        )
    if file.get("early") == name:
        carried = cell.eq_missing(pl.Series(rows.added_value(rows.base_of(stored), name)))
        return np.where((stored["flavour"] == EARLY).to_numpy(), ~carried.to_numpy(), ~right.to_numpy())
    return (~right).to_numpy()
