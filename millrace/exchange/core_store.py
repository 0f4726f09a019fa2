"""How to reach the core store that the platform runs itself (`MILLRACE_MYSIMBDP`): an address and a login.

`millrace up` writes it, readable by the platform's user alone, before it starts those who read it: the server, the couriers,
the demo. If it is lost, rows wait for the sink until the next `millrace up` writes it again."""

import json
from dataclasses import asdict, dataclass, field

from millrace.atomic import replace_file
from millrace.exchange.home import Home
from millrace.model.errors import Unavailable

_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class CoreStoreLogin:
    host: str
    port: int
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CoreStoreFile:
    home: Home

    def write(self, login: CoreStoreLogin) -> None:
        replace_file(self.home.core_store_login, json.dumps(asdict(login)), mode=_PRIVATE)

    def read(self) -> CoreStoreLogin:
        try:
            return CoreStoreLogin(**json.loads(self.home.core_store_login.read_text()))
        except (OSError, ValueError, TypeError):
            raise Unavailable(
                "This platform runs no core store.",
                remedy="Start it with MILLRACE_MYSIMBDP=true.",
                code="no_core_store",
            ) from None

    def withdraw(self) -> None:
        """The platform runs none any more."""
        self.home.core_store_login.unlink(missing_ok=True)
