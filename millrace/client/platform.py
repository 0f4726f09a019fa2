"""The platform as an object: a small client for each noun of the REST API, and what concerns the platform itself."""

from pathlib import Path
from typing import cast

from millrace.client.accounts import AuditClient, TokenClient, UsageClient
from millrace.client.apps import AppClient
from millrace.client.connection import Connection
from millrace.client.documents import HealthDocument, QueryResult
from millrace.client.errors import problem_from
from millrace.client.events import EventClient
from millrace.client.imports import ImportClient
from millrace.client.rejected import RejectedRowClient
from millrace.client.resource import OpClient
from millrace.client.rows import RowClient
from millrace.client.spans import SpanClient
from millrace.client.tables import QualityClient, SchemaClient, SinkClient, TableClient
from millrace.client.tenants import KeyClient, TenantClient
from millrace.client.trust import Trust
from millrace.client.webhooks import WebhookClient
from millrace.client.whatif import WhatIfClient


class Millrace(Connection):
    """`platform.NOUN.verb(…)`: one method for each route. Safe to share between threads."""

    def __init__(self, url: str, token: str, *, ca_file: Path | None = None, trust: Trust | None = None) -> None:
        super().__init__(url, token, ca_file=ca_file, trust=trust)
        self.apps = AppClient(self)
        self.audit = AuditClient(self)
        self.events = EventClient(self)
        self.imports = ImportClient(self)
        self.keys = KeyClient(self)
        self.ops = OpClient(self)
        self.quality = QualityClient(self)
        self.rejected = RejectedRowClient(self)
        self.rows = RowClient(self)
        self.schemas = SchemaClient(self)
        self.sinks = SinkClient(self)
        self.spans = SpanClient(self)
        self.tables = TableClient(self)
        self.tenants = TenantClient(self)
        self.tokens = TokenClient(self)
        self.usage = UsageClient(self)
        self.webhooks = WebhookClient(self)
        self.whatif = WhatIfClient(self)

    def health(self) -> HealthDocument:
        """Also when the platform is degraded: the answer names the part."""
        response = self.send("GET", "/v1/health")
        if response.status_code not in (200, 503) or "parts" not in response.text:
            raise problem_from(response.status_code, response.content)
        return cast(HealthDocument, response.json())

    def metrics(self) -> str:
        """The server's metrics, in the text format of Prometheus."""
        return self.ok("GET", "/metrics").text

    def query(self, sql: str, *, max_rows: int | None = None) -> QueryResult:
        """The result of one SELECT over the tables that the token may read."""
        body = {"sql": sql, **({} if max_rows is None else {"max_rows": max_rows})}
        return cast(QueryResult, self.json("POST", "/v1/query", json=body))
