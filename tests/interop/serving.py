"""The loop of an engine's process: one request a line in, one marked answer a line out. What libraries print in between is
not an answer."""

import json
import sys
from collections.abc import Callable
from typing import Any

MARK = "\x1eanswer "
MOST_TEXT = 4000

Command = Callable[..., Any]


def serve(commands: dict[str, Command], hello: dict[str, str]) -> None:
    """Until the requests end. The first answer says who answers."""
    _answer({"done": hello})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            _answer({"done": commands[request.pop("do")](**request)})
        except Exception as error:
            _answer({"error": f"{type(error).__name__}: {error}"[:MOST_TEXT]})


def _answer(document: dict[str, Any]) -> None:
    sys.stdout.write(f"{MARK}{json.dumps(document)}\n")
    sys.stdout.flush()
