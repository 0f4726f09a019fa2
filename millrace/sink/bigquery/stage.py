"""Rows into a staging table of BigQuery: a table of rows in, the name of a staging table out.

The staging table and its load job are named by a digest of the loaded bytes. A load whose answer was lost is not repeated. A
load that failed, or whose table is gone, is repeated."""

import hashlib
import io
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from google.api_core.exceptions import BadRequest, Conflict, NotFound
from google.cloud import bigquery

from millrace.arrow.types import arrow_type
from millrace.model.sinks import Fault, SinkFailed
from millrace.model.table import Definition
from millrace.sink.bigquery.ddl import OWN, key_of, physical, staged_type, type_of
from millrace.sink.encoders.json_cells import json_text

REQUEST_SECONDS, JOB_SECONDS = 30.0, 600.0
STAGING_KEPT = timedelta(days=1)
LOOK_SECONDS = 0.5
# The library would retry for ten minutes. The courier decides better when to try again.
AGAIN = bigquery.DEFAULT_RETRY.with_timeout(10.0)


def newest(table: pa.Table, definition: Definition, floor: int) -> pa.Table:
    """The row with the greatest version of each key: a MERGE takes one row per key."""
    table = table.filter(pc.greater(table["_version"], floor))
    key = list(key_of(definition))
    numbered = pl.from_arrow(table.select(list(dict.fromkeys([*key, "_version"])))).with_row_index("_place")  # type: ignore[union-attr]
    return table.take(numbered.sort("_version").unique(key, keep="last")["_place"].sort().to_arrow())


def stage(client: bigquery.Client, dataset: str, definition: Definition, table: pa.Table) -> str:
    body = io.BytesIO()
    pq.write_table(_staged(table, definition), body, compression="snappy")
    digest = hashlib.sha256(definition.fingerprint.encode() + body.getbuffer()).hexdigest()[:40]
    staging = bigquery.Table(f"{dataset}._millrace_staging_{digest}", schema=_schema(definition))
    staging.expires = datetime.now(UTC) + STAGING_KEPT
    place = f"{dataset}.{staging.table_id}"
    client.create_table(staging, exists_ok=True, retry=AGAIN, timeout=REQUEST_SECONDS)
    for job_id in (f"millrace-{digest}", f"millrace-{digest}-{uuid.uuid4().hex}"):
        if _is_loaded(client, body, place, job_id, definition, table.num_rows):
            return place
    raise SinkFailed(f"{place} does not hold what was loaded into it.", Fault.SINK)


def find_table(client: bigquery.Client, place: str) -> bigquery.Table | None:
    try:
        return client.get_table(place, retry=AGAIN, timeout=REQUEST_SECONDS)
    except NotFound:
        return None


def _is_loaded(
    client: bigquery.Client, body: io.BytesIO, place: str, job_id: str, definition: Definition, rows: int
) -> bool:
    body.seek(0)
    config = bigquery.LoadJobConfig(
        source_format="PARQUET", write_disposition="WRITE_TRUNCATE", schema=_schema(definition)
    )
    try:
        job = client.load_table_from_file(body, place, job_id=job_id, job_config=config, timeout=REQUEST_SECONDS)
    except Conflict:
        # An earlier attempt created the job. The job may have failed, or its table may be gone.
        before = client.get_job(job_id, retry=AGAIN, timeout=REQUEST_SECONDS)
        found = find_table(client, place) if _has_succeeded(before) else None
        return found is not None and int(found.num_rows or 0) == rows
    try:
        job.result(retry=AGAIN, timeout=JOB_SECONDS)
    except BadRequest as error:
        raise SinkFailed(f"BigQuery does not take the rows: {error.message}", Fault.ROW) from error
    return True


def _has_succeeded(job: Any) -> bool:
    ends_at = time.monotonic() + JOB_SECONDS
    while not job.done(retry=AGAIN, timeout=REQUEST_SECONDS):
        if time.monotonic() > ends_at:
            raise SinkFailed(f"The job {job.job_id} does not end.", Fault.SINK)
        time.sleep(LOOK_SECONDS)
    return job.error_result is None


def _staged(table: pa.Table, definition: Definition) -> pa.Table:
    columns = {physical(column.name): _cells(table[column.name], arrow_type(column)) for column in definition.columns}
    return pa.table(columns | {name: table[name] for name, _ in OWN})


def _cells(column: pa.ChunkedArray, kind: pa.DataType) -> Any:
    if pa.types.is_nested(kind):
        return pa.chunked_array([json_text(chunk) for chunk in column.chunks], pa.string())
    return column.cast(pa.string()) if type_of(kind).startswith("BIGNUMERIC") else column


def _schema(definition: Definition) -> list[bigquery.SchemaField]:
    declared = [
        bigquery.SchemaField(physical(column.name), staged_type(arrow_type(column))) for column in definition.columns
    ]
    return [*declared, *(bigquery.SchemaField(name, kind) for name, kind in OWN)]
