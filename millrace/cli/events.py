"""The command events."""

from typing import Annotated, Any

import typer

from millrace.cli.printing import answer, printable
from millrace.cli.session import CommandSession

app = typer.Typer()


@app.command("events")
def events(
    session: CommandSession,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as they happen.")] = False,
    after: Annotated[int, typer.Option(help="Only events after this number.", min=0)] = 0,
    limit: Annotated[int, typer.Option(help="How many, without --follow.", min=1)] = 100,
) -> None:
    """Show what happened, as CloudEvents."""
    if not follow:
        for event in session.platform.events.page(after=after, limit=limit, newest=after == 0)["items"]:
            _show(session, event)
        return
    try:
        for _, event in session.platform.events.follow(after=after):
            _show(session, event)
    except KeyboardInterrupt:
        return


def _show(session: CommandSession, event: dict[str, Any]) -> None:
    data = event.get("data") or {}
    facts = " ".join(f"{name}={value}" for name, value in data.items() if not isinstance(value, dict | list))
    line = f"{event.get('time', '')}  {event.get('type', '')}  {event.get('subject', '')}  {facts}"
    answer(session, event, printable(line))
