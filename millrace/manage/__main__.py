"""`python -m millrace.manage`: the ingestion managers, speaking REST to the platform, until they are told to stop."""

import os

from millrace.client import Millrace
from millrace.exchange.home import Home
from millrace.manage.managers import IngestionManagers
from millrace.observe import log_to_stderr
from millrace.settings import Settings, wrong_settings_end
from millrace.stopping import StopRequest

STOP_SECONDS = 12.0


def main() -> None:
    log_to_stderr()
    stop_request = StopRequest()
    stop_request.heed_signals()
    # A platform that does not answer keeps a request waiting for longer than that.
    stop_request.exit_within(STOP_SECONDS)
    with wrong_settings_end():
        settings = Settings()
    managers = IngestionManagers(Home(settings.home), Millrace.from_home(settings.home), settings.apps, settings.kms)
    managers.run(stop_request)
    # Imports under way wait in their threads for answers that nobody needs any more.
    os._exit(0)


if __name__ == "__main__":
    main()
