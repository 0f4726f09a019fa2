"""`python -m millrace.k8s.probe data-plane|manager`: whether it is alive, for the cluster that asks: exit 0 or 1.

Both leave a note in the home: the data plane on which port it shows its metrics, the managers when they last looked."""

import sys
import urllib.request
from collections.abc import Callable, Mapping

from millrace.exchange.mailboxes import Exchange, open_exchange
from millrace.settings import Settings, wrong_settings_end

ANSWER_SECONDS = 5.0
SILENT_SECONDS = 60.0


def data_plane_lives(exchange: Exchange) -> bool:
    """A note of an earlier life names a port that nobody listens on."""
    port = exchange.data_plane.metrics_port()
    if port is None:
        return False
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=ANSWER_SECONDS):
        return True


def manager_lives(exchange: Exchange) -> bool:
    report = exchange.apps.last()
    return report is not None and report.age_seconds < SILENT_SECONDS


PROBES: Mapping[str, Callable[[Exchange], bool]] = {"data-plane": data_plane_lives, "manager": manager_lives}


def main(words: list[str]) -> int:
    if len(words) != 1 or words[0] not in PROBES:
        print(f"Name one of: {', '.join(PROBES)}.", file=sys.stderr)
        return 2
    with wrong_settings_end():
        home = Settings().home
    try:
        return 0 if PROBES[words[0]](open_exchange(home)) else 1
    except OSError as failed:
        print(f"{words[0]}: {failed}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
