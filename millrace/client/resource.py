"""What the clients of all nouns share: one connection, paths of quoted parts, answers of a known shape."""

from typing import Any, TypeVar, cast

from millrace.client.connection import Connection, path_part

T = TypeVar("T")
Document = dict[str, Any]
Documents = list[Document]


class ResourceClient:
    """One noun of the REST API, a method for each of its routes. Safe to share between threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _ask(self, answer: type[T], method: str, path: str, **request: Any) -> T:
        """`answer` names the shape that the platform documents; it is not checked."""
        return cast(T, self._connection.json(method, path, **request))

    def _items(self, item: type[T], path: str, **request: Any) -> list[T]:
        return cast("list[T]", self._connection.json("GET", path, **request)["items"])


def at(*parts: str) -> str:
    """The path of a route below /v1; no part can reach another route."""
    return "/v1/" + "/".join(map(path_part, parts))


def given(**values: object) -> dict[str, str]:
    """Query parameters: without those that are None, and with `true` and `false` as JSON spells them."""
    return {name: _text(value) for name, value in values.items() if value is not None}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
