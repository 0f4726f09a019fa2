"""Announces what the ingestion managers wrote about runs of client apps. They have no access to the log, the server has."""

from collections.abc import Callable
from typing import Any

from millrace.exchange.app_news import AppNews
from millrace.failpoint import reach
from millrace.model.ops import Op
from millrace.model.ops.tenants import NoteApp

ANNOUNCE_SECONDS = 0.5


def announce_apps(news: AppNews, append: Callable[[Op[Any]], Any]) -> None:
    """A note goes when its op is in the log. If the server is killed before that, the op is appended again under the same
    id, and its event has the same id too."""
    for note in news.waiting():
        op = NoteApp(note.tenant, id=note.id, run=note.run, what=note.what, data=note.data)
        append(op).result()
        reach("after_app_note")
        news.remove(note)
