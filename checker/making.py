"""Files made by a seed: rows are chosen, noted in the dump, and rendered, before anyone sends them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from checker import flavours
from checker.board import Board, Lines
from checker.rendering import render, render_keys
from checker.rows import SCHEMA
from checker.tables import Table, zipf_keys

LOAD, DELETE, STREAM = "load", "delete", "stream"
MOST_ROWS = 50_000
DELETING_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class File:
    number: int
    table: Table
    kind: str
    key: str
    rows: int
    body: bytes = field(repr=False)
    params: Mapping[str, str]


class Maker:
    """With `deletes`, some rows of JSON Lines files delete their key."""

    def __init__(self, seed: int, canaries: Mapping[str, str], folder: Path, board: Board, *, deletes: bool) -> None:
        self._seed, self._canaries, self._board, self._deletes = seed, canaries, board, deletes
        self._folder = folder / "rows"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lines = Lines(folder / "files.jsonl")

    def make(self, rng: np.random.Generator, table: Table, count: int, kind: str = LOAD) -> File:
        number = self._board.next_file()
        file_format = "jsonl" if kind == STREAM or rng.random() < 0.5 else "csv"
        known = table.known
        added = list(known.added[: int(rng.integers(0, len(known.added) + 1))]) if kind != DELETE else []
        early = known.next_name if file_format == "jsonl" and kind != DELETE else None
        frame = self._rows(rng, number, count, file_format, kind, table.keyed)
        key = f"{self._seed}-{number}"
        about = {"file": number, "tenant": table.tenant, "table": table.name, "kind": kind, "key": key, "rows": count}
        frame.write_parquet(self._folder / f"{number:06d}.parquet")
        self._lines.add({**about, "format": file_format, "added": added, "early": early})
        if kind == DELETE:
            body = render_keys(frame["k"], file_format)
        else:
            body = render(frame, self._canaries[table.tenant], file_format, added, early)
        params = {"format": file_format, "file_name": f"{number}.{file_format}"}
        return File(number, table, kind, key, count, body, params | ({"kind": DELETE} if kind == DELETE else {}))

    def _rows(
        self, rng: np.random.Generator, number: int, count: int, file_format: str, kind: str, keyed: bool
    ) -> pl.DataFrame:
        flavour = flavours.choose(rng, count, file_format)
        if kind == DELETE:
            flavour = np.full(count, flavours.DELETE)
        elif self._deletes and keyed and file_format == "jsonl":
            flavour = np.where(rng.random(count) < DELETING_SHARE, flavours.DELETE, flavour)
        columns = {
            "file": np.full(count, number),
            "row": np.arange(1, count + 1),
            "k": zipf_keys(rng, count),
            "nonce": rng.integers(0, 1 << 32, count),
            "flavour": flavour,
        }
        return pl.DataFrame(columns, schema=SCHEMA)


def some_rows(rng: np.random.Generator) -> int:
    """From one row to tens of thousands, small files much more often."""
    return int(np.exp(rng.uniform() ** 1.3 * np.log(MOST_ROWS)))
