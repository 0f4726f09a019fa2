"""Rows to a URL, as signed requests of JSON lines. A request that is sent again has the same id.

The receiver follows the rules of docs/sinks.md: it keeps the greatest `_version` of each key, drops rows at or below the
greatest `millrace-floor`, and ignores an id that it has seen. An answer of 2xx means that the rows are durable there."""

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import ClassVar

import pyarrow.compute as pc
from pydantic import Field

from millrace.model.columns import DELETED_COLUMN
from millrace.model.sinks import Abilities, Fault, SinkFailed
from millrace.model.table import Definition
from millrace.outbound.addresses import parse_target
from millrace.outbound.http import Answer, post
from millrace.outbound.signing import signed_headers
from millrace.sink.connector import Definitions, Work, usual_fault
from millrace.sink.context import SinkContext
from millrace.sink.encoders.json_cells import json_rows
from millrace.sink.settings import ConnectorSettings, SecretReference, Uri

CONTENT_TYPE = "application/x-ndjson; charset=utf-8"
REQUESTS_AT_ONCE = 4
REQUEST_BYTES, REQUEST_ROWS = 1 << 20, 5000
REQUEST_SECONDS = 60.0
# These answers ask for another try. Any other 4xx would be the same next time.
_LATER = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)


class WebhookSettings(ConnectorSettings):
    kind: ClassVar[str] = "webhook"
    connector: ClassVar[str] = "millrace.sink.webhook:WebhookSink"
    abilities: ClassVar[Abilities] = Abilities(nested_types=True, exactly_once_append=True)

    url: Uri = Field(description="Rows are sent to this address. Redirects are not followed.")
    secret: SecretReference = Field(
        description="A reference to the secret that requests are signed with: env:…, file:…, k8s:… or vault:…."
    )
    read_url: Uri | None = Field(
        None, description="The receiver shows its rows here, as JSON lines. Used only for checks."
    )


class WebhookSink:
    def __init__(self, settings: WebhookSettings, context: SinkContext) -> None:
        self._target = parse_target(settings.url)
        self._secret = context.secret(settings.secret)
        self._allowed = context.allowed
        self._floors: dict[str, int] = {}

    def check(self) -> None:
        asyncio.run(self._send(f"check_{secrets.token_hex(12)}", {"millrace-check": "true"}, b""))

    def prepare(self, definition: Definition, definitions: Definitions) -> None:
        self._tell_floor(definition, definition.floor)

    def write(self, work: Work) -> None:
        self._tell_floor(work.definition, work.floor)
        asyncio.run(self._send_all(work))

    def _tell_floor(self, definition: Definition, floor: int) -> None:
        """Sends a request without rows. Another process may send it again, which changes nothing."""
        name = f"{definition.tenant}/{definition.table.name}"
        if floor > self._floors.get(name, 0):
            asyncio.run(self._send(f"floor_{_digest(name, floor, b'')}", _described(definition, floor), b""))
            self._floors[name] = floor

    async def _send_all(self, work: Work) -> None:
        under_way: set[asyncio.Task[None]] = set()
        floor = max(work.floor, self._floors.get(f"{work.definition.tenant}/{work.definition.table.name}", 0))
        headers = _described(work.definition, floor)
        try:
            for request_id, body in _requests(work, floor):
                under_way.add(asyncio.create_task(self._send(request_id, headers, body)))
                if len(under_way) >= REQUESTS_AT_ONCE:
                    done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
            await asyncio.gather(*under_way)
        finally:
            for task in under_way:
                task.cancel()

    async def _send(self, request_id: str, headers: dict[str, str], body: bytes) -> None:
        signed = signed_headers([self._secret], request_id, int(time.time()), body)
        described = {**signed, **headers, "Content-Type": CONTENT_TYPE}
        answer = await post(self._target, described, body, self._allowed, REQUEST_SECONDS)
        if not answer.is_success:
            raise SinkFailed(f"{self._target.host} answered {answer.status}.", fault_of(answer), _remedy(answer))

    def classify(self, error: BaseException) -> Fault:
        return usual_fault(error)

    def close(self) -> None:
        """Nothing stays open between requests."""


def fault_of(answer: Answer) -> Fault:
    """422: the receiver refuses a row for good. Other 4xx and redirects: it does not take the table. Everything else: the
    receiver itself is in trouble."""
    if answer.status == HTTPStatus.UNPROCESSABLE_ENTITY:
        return Fault.ROW
    if answer.status in _LATER or not 300 <= answer.status < 500:
        return Fault.SINK
    return Fault.TABLE


def _remedy(answer: Answer) -> str:
    return "Redirects are not followed: give the address it points to." if 300 <= answer.status < 400 else ""


def _described(definition: Definition, floor: int) -> dict[str, str]:
    return {
        "millrace-table": f"{definition.tenant}/{definition.table.name}",
        "millrace-key": json.dumps(definition.table.primary_key),
        "millrace-definition": definition.fingerprint,
        "millrace-generation": str(definition.generation),
        "millrace-revision": str(definition.revision),
        "millrace-floor": str(floor),
    }


def _requests(work: Work, floor: int) -> Iterator[tuple[str, bytes]]:
    """Ids and bodies. A request holds rows of one chunk, and its id is derived from these rows."""
    name = f"{work.definition.tenant}/{work.definition.table.name}"
    columns = [column.name for column in work.definition.columns] + ["_version", "_import", "_row", DELETED_COLUMN]
    for rows in work.rows:
        for batch in rows.open():
            fresh = batch.filter(pc.greater(batch["_version"], floor)).select(columns)
            for version in pc.unique(fresh["_version"]).to_pylist():
                chunk = fresh.filter(pc.equal(fresh["_version"], version))
                places = chunk["_row"].to_numpy()
                for begin, lines in _cut(json_rows(chunk)):
                    numbers = places[begin : begin + len(lines)].tobytes()
                    yield f"rows_{_digest(name, version, numbers)}", b"\n".join([*lines, b""])


def _cut(lines: list[bytes]) -> Iterable[tuple[int, list[bytes]]]:
    begin = size = 0
    for at, line in enumerate(lines):
        if at > begin and (size + len(line) > REQUEST_BYTES or at - begin >= REQUEST_ROWS):
            yield begin, lines[begin:at]
            begin, size = at, 0
        size += len(line)
    if lines:
        yield begin, lines[begin:]


def _digest(name: str, version: int, numbers: bytes) -> str:
    return hashlib.blake2b(f"{name}@{version}:".encode() + numbers, digest_size=16).hexdigest()
