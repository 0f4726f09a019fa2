"""`python -m millrace.k8s.broker PORT`: the single broker as a container beside the platform's others, on their loopback.

Prepares its storage under the home, then becomes the broker: whoever runs the container starts it again. A helper gives the
accounts their rights as soon as the broker answers (`python -m millrace.k8s.broker PORT open`), and ends."""

import os
import subprocess
import sys
import time

from millrace.embed.accounts import ADMIN
from millrace.embed.broker import is_open, prepare_broker
from millrace.exchange.places import places_below
from millrace.settings import Settings, wrong_settings_end
from millrace.wire.access import broker_accounts

OPEN_SECONDS = 180.0
LOOK_SECONDS = 0.25


def main(words: list[str]) -> int:
    with wrong_settings_end():
        settings, port = Settings(), int(words[0])
    places = places_below(settings.home)
    accounts = broker_accounts(settings.kafka.passwords or places.broker_passwords)
    if words[1:] == ["open"]:
        ends = time.monotonic() + OPEN_SECONDS
        while not is_open(port, accounts, accounts.passwords()[ADMIN]):
            if time.monotonic() > ends:
                return 1
            time.sleep(LOOK_SECONDS)
        return 0
    heap, durable = settings.kafka.heap_mb, settings.survives_power_cut
    broker = prepare_broker(places.broker, accounts, port, heap, durable=durable)
    # Not waited for: this process is about to become another program.
    subprocess.Popen([sys.executable, "-m", "millrace.k8s.broker", str(port), "open"])
    command = broker.child.launch.argv
    os.execv(command[0], command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
