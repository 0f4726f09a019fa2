"""The command up."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.session import CommandSession
from millrace.client.endpoint import default_home

app = typer.Typer()


@app.command("up")
def up(
    session: CommandSession,
    port: Annotated[int, typer.Option(help="Of the REST API; 0 takes any free one.", min=0, max=65535)] = 8420,
    host: Annotated[str | None, typer.Option(help="Address to bind. Default: loopback only.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="A certificate: the API speaks TLS.", dir_okay=False)] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key.", dir_okay=False)] = None,
) -> None:
    """Start the platform in the foreground.

    Ctrl-C stops all of it; the data stays, and the next start goes on where it was."""
    # What it starts takes long to import.
    from millrace.embed.up import run_up  # noqa: PLC0415
    from millrace.settings import unread  # noqa: PLC0415

    for name, meant in unread(os.environ).items():
        hint = f" Is {meant} meant?" if meant else ""
        print(f"warning: nothing reads {name}.{hint}", file=sys.stderr)
    run_up((session.home or default_home()).expanduser().resolve(), port, host, tls_cert, tls_key)
