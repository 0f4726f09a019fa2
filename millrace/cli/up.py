"""The `up` command; kept apart because what it starts is slow to import."""

import os
import sys

from millrace.cli.session import Session
from millrace.client.endpoint import default_home
from millrace.embed.up import run_up
from millrace.settings import unread


def start(session: Session, port: int, host: str | None) -> None:
    for name, meant in unread(os.environ).items():
        hint = f" Is {meant} meant?" if meant else ""
        print(f"warning: nothing reads {name}.{hint}", file=sys.stderr)
    run_up((session.home or default_home()).expanduser().resolve(), port, host)
