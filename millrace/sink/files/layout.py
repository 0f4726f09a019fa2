"""Which folder a row's file is in: a table of rows in, one table per folder out.

Folders are by import, or by the window of time in which the import was admitted. Below that is a level for each partition
column. In values everything except letters, digits and a few signs is escaped, as Hive does it."""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import quote

import polars as pl
import pyarrow as pa

from millrace.model.columns import parse_columns
from millrace.model.errors import Invalid
from millrace.model.table import TableDeclaration
from millrace.sink.files.settings import FilesSettings

WINDOWS = {"hour": "date=%Y-%m-%d/hour=%H", "day": "date=%Y-%m-%d", "month": "month=%Y-%m"}
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
LONGEST_VALUE = 150
_KINDS = ("boolean", "int", "long", "string", "enum")

Partition = dict[str, str | None]


def refuse_unfit(settings: FilesSettings, table: TableDeclaration) -> None:
    kinds = {column.name: column.kind for column in parse_columns(table.schema)}
    for name in settings.partition_by:
        if kinds.get(name) not in _KINDS:
            raise Invalid(
                f"partition_by names {name!r}, which is {'no column' if name not in kinds else 'not fit for it'}.",
                remedy=f"Choose columns of these types: {', '.join(_KINDS)}, date.",
                code="bad_partition",
            )


def split(
    settings: FilesSettings, table: pa.Table, import_id: str, version: int
) -> Iterator[tuple[str, Partition, pa.Table]]:
    """Folder, partition values and rows; versions are microseconds."""
    if not table.num_rows:
        return
    at = datetime.fromtimestamp(version / 1e6, UTC)
    folder = import_id if settings.layout == "import" else at.strftime(WINDOWS[settings.window])
    if not settings.partition_by:
        yield folder, {}, table
        return
    values = [table[name].cast(pa.string()) for name in settings.partition_by]
    frame = pl.DataFrame({str(place): pl.Series(value) for place, value in enumerate(values)})
    # Sorted by value, so that the same rows give the same files in the same order.
    groups = frame.with_row_index("at").group_by(frame.columns).agg(pl.col("at")).sort(frame.columns)
    for *found, places in groups.iter_rows():
        partition = dict(zip(settings.partition_by, found, strict=True))
        below = "/".join(f"{quote(name, safe=' ')}={_folder(value)}" for name, value in partition.items())
        yield f"{folder}/{below}", partition, table.take(pa.array(places))


def _folder(value: str | None) -> str:
    if value is None:
        return NULL_FOLDER
    escaped = quote(value, safe=" ")
    if len(escaped) <= LONGEST_VALUE:
        return escaped
    digest = hashlib.blake2b(value.encode(), digest_size=8).hexdigest()
    return f"{escaped[:LONGEST_VALUE].rpartition('%')[0] or escaped[:LONGEST_VALUE]}~{digest}"
