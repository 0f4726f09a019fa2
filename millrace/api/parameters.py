"""Names that a request may use. An unknown one is refused with the nearest known one, so that no typo goes unnoticed."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIWebSocketRoute
from pydantic import BaseModel, ConfigDict
from starlette.requests import HTTPConnection

from millrace.model.errors import Invalid


class RequestBody(BaseModel):
    """The body of a request: a JSON object with these fields and no others."""

    model_config = ConfigDict(extra="forbid")


def query_names(dependant: Dependant) -> frozenset[str]:
    """The query parameters that an endpoint and what it depends on declare."""
    own = frozenset(field.alias for field in dependant.query_params)
    return own.union(*map(query_names, dependant.dependencies))


def refuse_unknown_parameters(connection: HTTPConnection, known: Collection[str]) -> None:
    refuse_unknown("query parameter", connection.query_params.keys(), known)


def refuse_unknown_of_socket(connection: HTTPConnection) -> None:
    """A WebSocket's endpoint calls this itself, because it refuses in its own way."""
    route = connection.scope["route"]
    assert isinstance(route, APIWebSocketRoute)
    refuse_unknown_parameters(connection, query_names(route.dependant))


def refuse_unknown(what: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise unknown_name(what, name, known)


def unknown_name(what: str, name: str, known: Collection[str]) -> Invalid:
    near = get_close_matches(name.lower(), known, 1)
    likely = f"Did you mean {near[0]!r}? " if near else ""
    all_known = f"Known: {', '.join(sorted(known))}." if known else "None is known here."
    return Invalid(f"Unknown {what} {name!r:.60}.", remedy=f"{likely}{all_known}", code="unknown_name")
