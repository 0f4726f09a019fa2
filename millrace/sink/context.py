"""What the operator set that concerns sinks. Each process reads its settings once, at its edge, and passes this on.

It can be pickled to Spark workers and holds no secret: secrets are read by reference, where they are used."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from millrace.credentials.secrets import Secrets
from millrace.exchange.places import Places
from millrace.model.addresses import Networks
from millrace.outbound.addresses import Judged
from millrace.settings import JdbcDriver, LakeSettings, Settings


@dataclass(frozen=True, slots=True)
class SinkContext:
    """`allowed` are the private networks that tenants' sinks may reach; `files_root` is where local file sinks may write.
    `tenant` is whose secrets may be read; without one none may. `has_core_store`: tables without sinks are stored there."""

    places: Places
    allowed: Networks = ()
    lake: LakeSettings = field(default_factory=LakeSettings)
    jdbc_drivers: Mapping[str, JdbcDriver] = field(default_factory=dict)
    files_root: Path | None = None
    secrets: Secrets = field(default_factory=Secrets)
    tenant: str | None = None
    has_core_store: bool = False

    @staticmethod
    def of(settings: Settings, places: Places) -> "SinkContext":
        return SinkContext(
            places,
            settings.api.private_targets,
            settings.lake,
            settings.jdbc.drivers,
            settings.files_root,
            Secrets.of(settings),
            has_core_store=settings.mysimbdp,
        )

    def for_tenant(self, tenant: str) -> "SinkContext":
        return replace(self, tenant=tenant)

    def secret(self, reference: str) -> str:
        """A secret that a declaration of the tenant names."""
        return self.secrets.read(self._owner, reference)

    def check_secret(self, reference: str) -> None:
        """Refuses a reference that the tenant may not use, without reading the secret."""
        self.secrets.check(self._owner, reference)

    @property
    def _owner(self) -> str:
        if self.tenant is None:
            raise RuntimeError("Nobody said whose secrets may be read.")
        return self.tenant

    @property
    def permitted(self) -> Judged:
        """The addresses of a host that a tenant named, as far as we may connect to them."""
        return Judged(tuple(self.allowed))
