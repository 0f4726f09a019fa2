"""What a tenant's program is tended with in unit tests: a stand-in for the platform and keys in, tools out."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from millrace.client import Millrace
from millrace.exchange.home import Home
from millrace.manage.confinement import possible_confinement
from millrace.manage.limits import Limiter
from millrace.manage.tools import Tools
from millrace.manage.watching import Watcher
from millrace.seal.keyring import Keyring
from millrace.settings import AppSettings
from tests.support.fake_platform import TOKEN


@contextmanager
def tools_at(url: str, root: Path, keys: Callable[[], Keyring]) -> Iterator[Tools]:
    home = Home(root)
    confinement = possible_confinement(home, AppSettings())
    limiter = Limiter(own_user=confinement.own_user)
    with Millrace(url, TOKEN) as connection, ThreadPoolExecutor(4) as workers, ThreadPoolExecutor(4) as senders:
        # Polling: what another machine writes makes no news here.
        watcher, longest = Watcher(poll=True), timedelta(days=1)
        tools = Tools(
            home, connection, confinement, limiter, watcher, workers, senders, longest, keys, lambda: None
        )  # fmt: skip
        yield tools
        tools.stopping.set()
