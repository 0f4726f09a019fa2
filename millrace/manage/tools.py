"""What all tenants' programs are tended with."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta

from millrace.client import Millrace
from millrace.exchange.apps import AppBoard
from millrace.exchange.home import Home
from millrace.manage.confinement import Confinement
from millrace.manage.limits import Limiter
from millrace.manage.watching import Watcher
from millrace.seal.keyring import Keyring


@dataclass(slots=True)
class Tools:
    """`wake`: the loop has something to look at. `stopping`: nothing more is begun. `keys`: asked only for tenants whose
    agreement wants something sealed."""

    home: Home
    connection: Millrace
    confinement: Confinement
    limiter: Limiter
    watcher: Watcher
    workers: ThreadPoolExecutor
    senders: ThreadPoolExecutor
    longest_run: timedelta
    keys: Callable[[], Keyring]
    wake: Callable[[], None]
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def apps(self) -> AppBoard:
        return AppBoard(self.home)
