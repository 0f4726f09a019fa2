"""The `up` command; kept apart because what it starts is slow to import."""

from millrace.cli.session import Session
from millrace.client.endpoint import default_home
from millrace.embed.up import run_up


def start(session: Session, port: int, host: str | None) -> None:
    run_up((session.home or default_home()).expanduser().resolve(), port, host)
