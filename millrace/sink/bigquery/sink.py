"""The BigQuery connector: load jobs, guarded MERGE statements, and labels that say which definition a table has."""

import uuid
from collections.abc import Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import pyarrow as pa
from google.api_core.client_options import ClientOptions
from google.api_core.exceptions import BadRequest, Conflict, GoogleAPIError, NotFound
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.cloud import bigquery
from google.resumable_media import DataCorruption, InvalidResponse

from millrace.model.errors import Invalid, Unavailable
from millrace.model.evolution import path
from millrace.model.sinks import Fault, SinkFailed
from millrace.model.table import Definition
from millrace.sink.bigquery import ddl
from millrace.sink.bigquery.session import pinned_session
from millrace.sink.bigquery.settings import BigQuerySettings
from millrace.sink.bigquery.stage import AGAIN, JOB_SECONDS, REQUEST_SECONDS, find_table, newest, stage
from millrace.sink.connector import Definitions, Work
from millrace.sink.context import SinkContext
from millrace.sink.google_account import service_account

SCOPES = ("https://www.googleapis.com/auth/bigquery",)


class BigQuerySink:
    def __init__(self, settings: BigQuerySettings, context: SinkContext) -> None:
        self._prefix = settings.dataset
        self._location = settings.location
        credentials = _credentials(settings, context)
        self._session = pinned_session(credentials, context.permitted)
        self._client = bigquery.Client(
            project=settings.project,
            credentials=credentials,
            _http=self._session,
            location=self._location,
            client_options=ClientOptions(api_endpoint=settings.endpoint) if settings.endpoint else None,
        )

    def check(self) -> None:
        place = f"{self._client.project}.{self._prefix}_check_{uuid.uuid4().hex[:12]}"
        dataset = bigquery.Dataset(place)
        dataset.location = self._location
        self._client.create_dataset(dataset, retry=AGAIN, timeout=REQUEST_SECONDS)
        try:
            self._run(f"CREATE TABLE `{place}.t` (k INT64)")
        finally:
            self._client.delete_dataset(dataset, delete_contents=True, not_found_ok=True, timeout=REQUEST_SECONDS)

    def prepare(self, definition: Definition, definitions: Definitions) -> None:
        dataset = bigquery.Dataset(self._dataset(definition))
        dataset.location = self._location
        self._client.create_dataset(dataset, exists_ok=True, retry=AGAIN, timeout=REQUEST_SECONDS)
        place = self._place(definition)
        there = find_table(self._client, place)
        before = None if there is None else self._prepared_for(there, definitions)
        if before is None or before.generation < definition.generation:
            if there is not None:
                self._run(f"DROP TABLE `{place}`")
            self._run(ddl.create(place, definition))
            self._label(place, {ddl.DEFINITION_LABEL: definition.fingerprint, ddl.FLOOR_LABEL: str(definition.floor)})
        elif before.revision < definition.revision:
            assert there is not None
            for statement in ddl.alter(
                place, [field.name for field in there.schema], path(definitions, before, definition)
            ):
                self._run(statement)
            self._label(place, {ddl.DEFINITION_LABEL: definition.fingerprint})
        else:
            definition = before
        self._run(ddl.create_view(self._view(definition), place, definition))
        self._raise_floor(place, definition.floor)

    def _prepared_for(self, there: bigquery.Table, definitions: Definitions) -> Definition | None:
        """None if the creation of the table was interrupted."""
        if ddl.DEFINITION_LABEL in there.labels:
            return definitions(there.labels[ddl.DEFINITION_LABEL])
        if there.num_rows:
            raise SinkFailed(
                f"The table {there.table_id} has rows, but not the label {ddl.DEFINITION_LABEL}.",
                Fault.TABLE,
                remedy="Put the label back, or remove the table.",
            )
        return None

    def write(self, work: Work) -> None:
        place = self._place(work.definition)
        floor = self._raise_floor(place, work.floor)
        batches = [batch for rows in work.rows for batch in rows.open()]
        if not batches:
            return
        table = newest(pa.Table.from_batches(batches), work.definition, floor)
        if not table.num_rows:
            return
        staging = stage(self._client, self._dataset(work.definition), work.definition, table)
        self._run(ddl.merge(place, staging, work.definition))
        self._client.delete_table(staging, not_found_ok=True, retry=AGAIN, timeout=REQUEST_SECONDS)

    def _raise_floor(self, place: str, floor: int) -> int:
        """The table's floor from now on. Rows are deleted before the label changes, so an interrupted attempt is repeated."""
        there = find_table(self._client, place)
        if there is None:
            raise SinkFailed(f"The table {place} is gone.", Fault.TABLE, remedy="Declare a new generation.")
        known = int(there.labels.get(ddl.FLOOR_LABEL, 0))
        if floor > known:
            self._run(f"DELETE FROM `{place}` WHERE `_version` <= {int(floor)}")
            self._label(place, {ddl.FLOOR_LABEL: str(floor)})
        return max(floor, known)

    def classify(self, error: BaseException) -> Fault:
        match error:
            case SinkFailed():
                return error.fault
            case NotFound() | BadRequest() | Conflict():
                return Fault.TABLE
            # Quotas, permissions, time-outs and servers that fail: not this table's doing.
            case GoogleAPIError() | GoogleAuthError() | Invalid() | Unavailable():
                return Fault.SINK
            case OSError() | FutureTimeout() | DataCorruption() | InvalidResponse():
                return Fault.SINK
        return Fault.TABLE

    def close(self) -> None:
        self._session.close()  # type: ignore[no-untyped-call]

    def _dataset(self, definition: Definition) -> str:
        return f"{self._client.project}.{ddl.dataset_name(self._prefix, definition.tenant)}"

    def _place(self, definition: Definition) -> str:
        return f"{self._dataset(definition)}.{ddl.table_name(definition.table.name)}"

    def _view(self, definition: Definition) -> str:
        return f"{self._dataset(definition)}.{definition.table.name}"

    def _label(self, place: str, labels: Mapping[str, str]) -> None:
        """Fails if the table changed since it was read: two writers cannot undo each other's floor."""
        table = self._client.get_table(place, retry=AGAIN, timeout=REQUEST_SECONDS)
        table.labels = {**table.labels, **labels}
        self._client.update_table(table, ["labels"], retry=AGAIN, timeout=REQUEST_SECONDS)

    def _run(self, statement: str) -> list[Any]:
        # A random id: a statement may run twice, but one that did not run must run again.
        job = self._client.query(
            statement, job_id_prefix="millrace-", retry=AGAIN, job_retry=None, timeout=REQUEST_SECONDS
        )
        return list(job.result(retry=AGAIN, job_retry=None, timeout=JOB_SECONDS))


def _credentials(settings: BigQuerySettings, context: SinkContext) -> Any:
    """The tenant's own service account, never the platform's. Tokens are signed in this process, without a request."""
    if settings.credentials is not None:
        return service_account(context.secret(settings.credentials), SCOPES)
    return AnonymousCredentials()  # type: ignore[no-untyped-call]
