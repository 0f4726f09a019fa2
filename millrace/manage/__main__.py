"""`python -m millrace.manage`: the ingestion managers, speaking REST to the platform, until they are told to stop."""

import logging
import os
import signal
import threading
from types import FrameType

from millrace.client import Millrace
from millrace.manage.managers import IngestionManagers
from millrace.model.names import Home
from millrace.observe import log_to_stderr
from millrace.settings import Settings


def main() -> None:
    log_to_stderr()
    # The platform is asked every second.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    settings, stopping = Settings(), threading.Event()
    keeper = IngestionManagers(Home(settings.home), Millrace.from_home(settings.home), settings.apps, settings.kms)

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()
        keeper.wake()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    keeper.run(stopping)
    # Imports under way wait in their threads for answers that nobody needs any more.
    os._exit(0)


if __name__ == "__main__":
    main()
