"""Ops: requests to the controller that are evaluated later."""

import time

from millrace.client.connection import Connection
from millrace.client.errors import Problem
from millrace.client.resource import Document, ResourceClient, at

_POLL_SECONDS = 0.25


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


def settled(connection: Connection, answer: Document) -> Document:
    """The answer itself, or the result of the op it names."""
    return OpClient(connection).wait(answer["op"]) if "op" in answer else answer
