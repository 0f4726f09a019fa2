"""`python -m millrace.api BOOTSTRAP HOST PORT`: the server, until it is told to stop."""

import sys

import uvicorn

from millrace.api.app import make_app
from millrace.api.server import Server
from millrace.api.serving import serving_options
from millrace.exchange.client_file import read_client_file
from millrace.observe import log_to_stderr
from millrace.settings import Settings, wrong_settings_end
from millrace.wire.access import Account, cluster_of


def main() -> None:
    log_to_stderr()
    with wrong_settings_end():
        settings = Settings()
        options = serving_options(settings.api)
    bootstrap, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    server = Server(settings, cluster_of(settings.kafka, bootstrap, Account.SERVER))
    server.tokens.keep(read_client_file(settings.home).token, "admin", None)
    uvicorn.run(make_app(server.running), host=host, port=port, **options)


if __name__ == "__main__":
    main()
