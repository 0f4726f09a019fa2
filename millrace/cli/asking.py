"""The commands that ask: query and events."""

import sys
from typing import Any

from millrace.cli.printing import exact, print_json, print_table, printable
from millrace.cli.session import Session
from millrace.client import Millrace


def query(session: Session, sql: str, max_rows: int | None) -> None:
    with Millrace.from_home(session.home) as connection:
        result = connection.query(sql, max_rows=max_rows)
    if session.json:
        print_json(result)
        return
    print_table([column["name"] for column in result["columns"]], result["rows"], show=exact)
    more = ", more were cut off" if result["truncated"] else ""
    print(f"{len(result['rows']):,} rows{more}; {result['seconds']:.3f} s", file=sys.stderr)


def events(session: Session, follow: bool, after: int, limit: int) -> None:
    with Millrace.from_home(session.home) as connection:
        if not follow:
            for event in connection.events.page(after=after, limit=limit, newest=after == 0)["items"]:
                _show_event(session, event)
            return
        try:
            for _, event in connection.events.follow(after=after):
                _show_event(session, event)
        except KeyboardInterrupt:
            return


def _show_event(session: Session, event: dict[str, Any]) -> None:
    if session.json:
        print_json(event)
        return
    data = event.get("data") or {}
    facts = " ".join(f"{name}={value}" for name, value in data.items() if not isinstance(value, dict | list))
    print(
        printable(f"{event.get('time', '')}  {event.get('type', '')}  {event.get('subject', '')}  {facts}"), flush=True
    )
