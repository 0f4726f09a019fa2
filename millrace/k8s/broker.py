"""`python -m millrace.k8s.broker PORT`: the single broker as a container beside the platform's others, on their loopback.

Prepares its storage under the home, then becomes the broker: whoever runs the container starts it again."""

import os
import sys

from millrace.embed.broker import prepare_broker
from millrace.exchange.places import places_below
from millrace.settings import Settings
from millrace.wire.access import broker_accounts


def main() -> None:
    settings = Settings()
    places = places_below(settings.home)
    accounts = broker_accounts(settings.kafka.passwords or places.broker_passwords)
    broker = prepare_broker(places.broker, accounts, int(sys.argv[1]), settings.kafka.heap_mb)
    command = broker.child.launch.argv
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
