"""How the client apps do, and who asked for a run of one.

The ingestion managers report once a second; the server and the probe of Kubernetes read the last report. The server asks for
a run; the managers take the request when they begin it. If a report is lost, the server shows no status until the next one.
If a request is lost, nobody runs the app; the caller has to ask again."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from millrace.atomic import replace_file
from millrace.exchange.app_folders import app_slug
from millrace.exchange.home import Home
from millrace.model.agreement import THE_APP
from millrace.model.names import checked_name


@dataclass(frozen=True, slots=True)
class AppsReport:
    """`tenants`: the status of each app, by its slug. The rest describes how apps run on this machine."""

    confinement: Mapping[str, Any]
    limits: str
    watching: str
    tenants: Mapping[str, Mapping[str, Any]]
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"))

    @property
    def age_seconds(self) -> float:
        return (datetime.now(UTC) - datetime.fromisoformat(self.at)).total_seconds()


@dataclass(frozen=True, slots=True)
class AppBoard:
    home: Home

    def report(self, report: AppsReport) -> None:
        replace_file(self.home.apps, orjson.dumps(asdict(report)))

    def last(self) -> AppsReport | None:
        try:
            return AppsReport(**orjson.loads(self.home.apps.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def withdraw(self) -> None:
        """The managers are not there any more."""
        self.home.apps.unlink(missing_ok=True)

    def ask(self, tenant: str, app: str = THE_APP) -> None:
        """For a run of one of the tenant's apps. Asked twice before it begins, it runs once."""
        request = self._request(tenant, app)
        request.parent.mkdir(parents=True, exist_ok=True)
        request.touch()

    def asked(self) -> set[str]:
        """The slugs of the apps that a run is asked for."""
        folder = self.home.app_requests
        return {path.name for path in folder.iterdir()} if folder.is_dir() else set()

    def is_asked(self, tenant: str, app: str = THE_APP) -> bool:
        return self._request(tenant, app).exists()

    def clear_request(self, tenant: str, app: str = THE_APP) -> None:
        self._request(tenant, app).unlink(missing_ok=True)

    def _request(self, tenant: str, app: str) -> Path:
        return self.home.app_request(tenant, app_slug(checked_name("tenant", tenant), checked_name("app", app)))
