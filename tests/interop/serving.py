"""The loop of an engine's process: one request a line in, one marked answer a line out, with the request's number. What
libraries print in between is not an answer."""

import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

MARK = "\x1eanswer "
MOST_TEXT = 4000
HELLO = 0

Command = Callable[..., Any]
_WRITING = threading.Lock()


def serve(commands: dict[str, Command], hello: dict[str, str], at_once: int = 1) -> None:
    """Until the requests end. The first answer says who answers."""
    _answer(HELLO, {"done": hello})
    with ThreadPoolExecutor(at_once) as pool:
        for line in sys.stdin:
            pool.submit(_serve, commands, json.loads(line))


def _serve(commands: dict[str, Command], request: dict[str, Any]) -> None:
    number = request.pop("number")
    try:
        _answer(number, {"done": commands[request.pop("do")](**request)})
    except Exception as error:
        _answer(number, {"error": f"{type(error).__name__}: {error}"[:MOST_TEXT]})


def _answer(number: int, document: dict[str, Any]) -> None:
    with _WRITING:
        sys.stdout.write(f"{MARK}{json.dumps({'number': number, **document})}\n")
        sys.stdout.flush()
