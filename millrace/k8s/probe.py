"""`python -m millrace.k8s.probe data-plane|manager`: whether it is alive, for the cluster that asks: exit 0 or 1.

Both leave a note in the home: the data plane on which port it shows its metrics, the managers when they last looked."""

import json
import sys
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from millrace.model.names import Home
from millrace.settings import Settings

ANSWER_SECONDS = 5.0
SILENT_SECONDS = 60.0


def data_plane_lives(home: Home) -> bool:
    """A note of an earlier life names a port that nobody listens on."""
    port = int(str(_note(home.data_plane)["metrics_port"]))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=ANSWER_SECONDS):
        return True


def manager_lives(home: Home) -> bool:
    last = datetime.fromisoformat(str(_note(home.apps)["at"]))
    return (datetime.now(UTC) - last).total_seconds() < SILENT_SECONDS


def _note(file: Path) -> Mapping[str, object]:
    noted: Mapping[str, object] = json.loads(file.read_text())
    return noted


PROBES: Mapping[str, Callable[[Home], bool]] = {"data-plane": data_plane_lives, "manager": manager_lives}


def main(words: list[str]) -> int:
    if len(words) != 1 or words[0] not in PROBES:
        print(f"Name one of: {', '.join(PROBES)}.", file=sys.stderr)
        return 2
    try:
        return 0 if PROBES[words[0]](Home(Settings().home)) else 1
    except (OSError, ValueError, KeyError, TypeError) as failed:
        print(f"{words[0]}: {failed}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
