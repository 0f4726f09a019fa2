"""What the operator set that concerns sinks. Each process reads its settings once, at its edge, and passes this on.

It can be pickled to Spark workers and holds no secret: secrets are read by reference, where they are used."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millrace.exchange.places import Places
from millrace.model.addresses import Networks
from millrace.outbound.addresses import Judged
from millrace.settings import JdbcDriver, LakeSettings, Settings
from millrace.sink.secrets import read_secret


@dataclass(frozen=True, slots=True)
class SinkContext:
    """`allowed` are the private networks that tenants' sinks may reach; `files_root` is where local file sinks may write."""

    places: Places
    allowed: Networks = ()
    lake: LakeSettings = field(default_factory=LakeSettings)
    jdbc_drivers: Mapping[str, JdbcDriver] = field(default_factory=dict)
    files_root: Path | None = None
    secret: Callable[[str], str] = read_secret

    @staticmethod
    def of(settings: Settings, places: Places) -> "SinkContext":
        return SinkContext(
            places,
            settings.api.private_targets,
            settings.lake,
            settings.jdbc.drivers,
            settings.files_root,
        )

    @property
    def permitted(self) -> Judged:
        """The addresses of a host that a tenant named, as far as we may connect to them."""
        return Judged(tuple(self.allowed))
