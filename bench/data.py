"""Tenant A's rows as files, made once and kept under build/; and what pyarrow alone reaches with them."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from bench.onu import write_rows

REPOSITORY = Path(__file__).parents[1]
ALL_ROWS = 5_000_000
# How warm the JVMs and the workers are decides a lot: what is measured is a platform that has been at work.
WARMING_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class Data:
    folder: Path

    def rows(self, count: int, first: int = 0) -> Path:
        """So many rows with consecutive ONUIDs from `first` on."""
        path = self.folder / f"onu-{count}-{first}.csv"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            write_rows(count, partial, first)
            partial.rename(path)
        return path

    def large(self, least_bytes: int) -> Path:
        """One file of at least that size, every key once."""
        path = self.folder / f"large-{least_bytes}.csv"
        if path.exists():
            return path
        partial = path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        first = 0
        while not partial.exists() or partial.stat().st_size < least_bytes:
            _append_body(self.rows(ALL_ROWS, first), partial)
            if first:
                self.rows(ALL_ROWS, first).unlink()
            first += ALL_ROWS
        return partial.rename(path)

    def sampled(self, files: list[Path], count: int, phase: int) -> Path:
        """Rows spread evenly over files, with other speeds: the same keys, updated."""
        path = self.folder / f"sampled-{count}-{phase}.csv"
        tables = [_every(file, count // len(files), phase) for file in files]
        pcsv.write_csv(pa.concat_tables(tables), path, pcsv.WriteOptions(quoting_style="needed"))
        return path

    def spoiled(self, bad: int, good: int) -> Path:
        """Rows whose IFINDEX is no number, then good ones."""
        path = self.folder / f"spoiled-{bad}-{good}.csv"
        if not path.exists():
            table = _read(self.rows(bad + good))
            is_bad = pa.array(np.arange(table.num_rows) < bad)
            wrong = pc.if_else(is_bad, "none", table["IFINDEX"].cast(pa.string()))
            table = table.set_column(table.schema.get_field_index("IFINDEX"), "IFINDEX", wrong)
            pcsv.write_csv(table, path, pcsv.WriteOptions(quoting_style="needed"))
        return path


def limit_rows_per_second(path: Path) -> float:
    """What pyarrow alone reaches on every core of this machine, now."""
    # A process of its own: what this one has loaded must not slow its workers.
    command = [sys.executable, "-m", "bench.limit", str(path)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY, timeout=600).stdout
    return float(json.loads(printed)["rows_per_second"])


def _append_body(part: Path, whole: Path) -> None:
    with part.open("rb") as source, whole.open("ab") as target:
        if target.tell():
            source.readline()
        shutil.copyfileobj(source, target, 1 << 24)


def _read(path: Path) -> pa.Table:
    return pcsv.read_csv(
        path, convert_options=pcsv.ConvertOptions(column_types={"PROVINCECODE": pa.string(), "TIME": pa.string()})
    )


def _every(path: Path, count: int, phase: int) -> pa.Table:
    table = _read(path)
    table = table.take(np.arange(phase, table.num_rows, table.num_rows // count)[:count])
    faster = pc.add(table["SPEEDIN"], 1.0)
    return table.set_column(table.schema.get_field_index("SPEEDIN"), "SPEEDIN", faster)
