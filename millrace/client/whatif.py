"""What-ifs: a file, or the last raw chunks of a table, judged by the platform without importing anything."""

import base64
import json
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from millrace.client.documents import TrialReport
from millrace.client.file_body import PIECE_BYTES
from millrace.client.file_options import AS_DECLARED, FileOptions
from millrace.client.resource import ResourceClient, at, given

# To connect, to read, to write, to get a connection.
_TIMEOUT = (10.0, 180.0, 180.0, 180.0)
# Headers of this length pass every server and proxy on the way.
_LONGEST_PLAIN_HEADER = 4000
Declaration = Mapping[str, Any]


class WhatIfClient(ResourceClient):
    """`declaration`: another one than the table has. `bounds`: at most so many `rows`, and `examples` of each reason."""

    def file(
        self,
        tenant: str,
        table: str,
        path: Path,
        options: FileOptions = AS_DECLARED,
        *,
        declaration: Declaration | None = None,
        **bounds: int | None,
    ) -> TrialReport:
        with path.open("rb") as stream:
            named = options.for_file(path.name)
            return self.stream(tenant, table, stream, named, declaration=declaration, **bounds)

    def stream(
        self,
        tenant: str,
        table: str,
        stream: BinaryIO,
        options: FileOptions = AS_DECLARED,
        *,
        declaration: Declaration | None = None,
        **bounds: int | None,
    ) -> TrialReport:
        query, pieces = {**options.as_query(), **given(**bounds)}, iter(lambda: stream.read(PIECE_BYTES), b"")
        return self._validate(tenant, table, declaration, params=query, content=pieces)

    def last_chunks(
        self, tenant: str, table: str, count: int, *, declaration: Declaration | None = None, **bounds: int | None
    ) -> TrialReport:
        """Over the last so many chunks that were sent to the table, as far as the log still holds them."""
        return self._validate(tenant, table, declaration, params=given(last=count, **bounds))

    def kept_chunks(
        self, tenant: str, table: str, since: datetime, *, declaration: Declaration | None = None, **bounds: int | None
    ) -> TrialReport:
        """Over the chunks that were sent to the table since then, as far as the table keeps them (`keep_raw_days`)."""
        moment = since.astimezone(UTC).isoformat()
        return self._validate(tenant, table, declaration, params=given(since=moment, **bounds))

    def _validate(self, tenant: str, table: str, declaration: Declaration | None, **request: Any) -> TrialReport:
        headers = {"Content-Type": "application/octet-stream"}
        if declaration is not None:
            headers["Millrace-Declaration"] = _as_header(declaration)
        path = at("tenants", tenant, "tables", table, "validate")
        return self._ask(TrialReport, "POST", path, headers=headers, timeout=_TIMEOUT, **request)


def _as_header(declaration: Declaration) -> str:
    text = json.dumps(declaration, separators=(",", ":"))
    return text if len(text) <= _LONGEST_PLAIN_HEADER else base64.b64encode(zlib.compress(text.encode(), 9)).decode()
