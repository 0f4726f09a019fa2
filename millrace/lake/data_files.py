"""A data file of a table in, its Parquet reader out. Any engine may have written the file, and what the log says about it.
Refuses a file that has other rows than the log says, and names the file in every refusal.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from millrace.lake.actions import AddFile
from millrace.lake.bounds import too_large
from millrace.lake.conform import opened
from millrace.lake.store import Store
from millrace.model.errors import Corrupt

# Few rows, because with dictionary pages each of them may repeat one long value.
BATCH_ROWS = 1 << 14
_MOST_TEXT = 200
_REMEDY = "Restore the file from a copy, or undo the change where it was made (RESTORE TABLE … TO VERSION AS OF …)."
# Only a copy was damaged.
_ANOTHER = "The next attempt reads it anew."
_SMALLER = "Write it again with smaller row groups and pages, with the engine that wrote it."


@contextmanager
def data_file(store: Store, file: AddFile, *, whole: bool = False) -> Iterator[pq.ParquetFile]:
    """`whole`: all of it is read, so that a remote file is fetched completely."""
    try:
        with opened(store.whole(file.name) if whole else store.source(file.name)) as parquet:
            _refuse_footer(store, file, parquet.metadata)
            yield parquet
    except MemoryError:
        # It is about this file: the platform's other tables go on.
        raise too_large(store.where, file.name, "takes more memory to decode than there is", _SMALLER) from None
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        words = f"{type(error).__name__}: {' '.join(str(error).split())}"[:_MOST_TEXT]
        raise _damaged(store, file, words.rstrip(".")) from error


def group_batches(parquet: pq.ParquetFile, number: int, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of a row group, some at a time."""
    for batch in parquet.iter_batches(BATCH_ROWS, row_groups=[number], columns=list(columns)):
        yield pa.Table.from_batches([batch])


def refuse_other_count(store: Store, file: AddFile, rows: int) -> None:
    """A reader that trusts the log would leave out rows, or drop a file that still has some."""
    if 0 <= file.rows != rows:
        raise _damaged(store, file, f"it has {rows} rows, and the log says {file.rows}")


def refuse_marks_behind(store: Store, file: AddFile, dead: BitMap, rows: int) -> None:
    """`dead` are the positions that deletion vectors mark in a file of so many rows."""
    if dead and dead.max() >= rows:
        raise _damaged(store, file, f"its deletion vector marks row {dead.max()}, and it has {rows} rows")


def _refuse_footer(store: Store, file: AddFile, footer: pq.FileMetaData) -> None:
    most = store.bounds.file_rows
    groups = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    if min(groups, default=0) < 0 or sum(groups) != footer.num_rows:
        raise _damaged(store, file, "its footer contradicts itself about the number of rows")
    if footer.num_rows > most:
        raise too_large(store.where, file.name, f"has {footer.num_rows} rows; {most} are read at most", _SMALLER)
    refuse_other_count(store, file, footer.num_rows)


def _damaged(store: Store, file: AddFile, why: str) -> Corrupt:
    remedy = _ANOTHER if store.renew(file.name) else _REMEDY
    return Corrupt(f"{file.name} of the Delta table at {store.where} is damaged: {why}.", remedy=remedy)
