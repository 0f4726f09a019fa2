"""What the clients of all nouns share: one connection, paths of quoted parts, answers of a known shape, and ops."""

import time
from typing import Any, TypeVar, cast

from millrace.client.connection import Connection, path_part
from millrace.client.errors import Problem

T = TypeVar("T")
Document = dict[str, Any]
Documents = list[Document]
_POLL_SECONDS = 0.25


class ResourceClient:
    """One noun of the REST API, a method for each of its routes. Safe to share between threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _ask(self, answer: type[T], method: str, path: str, **request: Any) -> T:
        """`answer` names the shape that the platform documents; it is not checked."""
        return cast(T, self._connection.json(method, path, **request))

    def _items(self, item: type[T], path: str, **request: Any) -> list[T]:
        return cast("list[T]", self._connection.json("GET", path, **request)["items"])

    def _settled(self, method: str, path: str, **request: Any) -> Document:
        """The answer itself, or the result of the op it names: a request that the controller evaluates later."""
        answer = self._ask(Document, method, path, **request)
        return OpClient(self._connection).wait(answer["op"]) if "op" in answer else answer


class OpClient(ResourceClient):
    def show(self, op: str) -> Document:
        return self._ask(Document, "GET", at("ops", op))

    def wait(self, op: str) -> Document:
        """The result once the op was applied; raises what the controller refused."""
        while True:
            document = self.show(op)
            if document["state"] == "refused":
                refusal = document["refusal"]
                raise Problem(409, refusal["message"], code=refusal["code"], remedy=refusal["remedy"])
            if document["state"] == "applied":
                return dict(document["result"])
            time.sleep(_POLL_SECONDS)


def at(*parts: str) -> str:
    """The path of a route below /v1; no part can reach another route."""
    return "/v1/" + "/".join(map(path_part, parts))


def given(**values: object) -> dict[str, str]:
    """Query parameters: without those that are None, and with `true` and `false` as JSON spells them."""
    return {name: _text(value) for name, value in values.items() if value is not None}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
