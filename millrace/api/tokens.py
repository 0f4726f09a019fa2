"""Who is asking: bearer tokens, kept as digests only. What a caller may not see does not exist for it."""

import hashlib
import secrets
import time
from dataclasses import dataclass

from sqlalchemy import delete, select

from millrace.model.errors import Missing, Unauthorised
from millrace.store import tables as t
from millrace.store.engine import Store, insert_new

PREFIX = "mr_"


@dataclass(frozen=True, slots=True)
class Caller:
    """`tenant` is None for the platform's administrators."""

    name: str
    tenant: str | None

    @property
    def is_admin(self) -> bool:
        return self.tenant is None

    def must_see(self, tenant: str) -> None:
        if not self.is_admin and self.tenant != tenant:
            raise Missing(f"There is no tenant {tenant!r}.", code="no_tenant")

    def must_be_admin(self) -> None:
        if not self.is_admin:
            raise Missing("There is nothing here.", code="missing")


class Tokens:
    def __init__(self, store: Store) -> None:
        self._store = store

    def make(self, name: str, tenant: str | None) -> str:
        token = PREFIX + secrets.token_urlsafe(32)
        self.keep(token, name, tenant)
        return token

    def keep(self, token: str, name: str, tenant: str | None) -> None:
        row = {"digest": _digest(token), "name": name, "tenant": tenant, "created_us": time.time_ns() // 1000}
        with self._store.write() as connection:
            insert_new(connection, t.tokens, [row])

    def caller(self, authorization: str | None) -> Caller:
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() == "bearer" and token:
            with self._store.read() as connection:
                row = connection.execute(select(t.tokens).where(t.tokens.c.digest == _digest(token.strip()))).first()
            if row is not None:
                return Caller(row.name, row.tenant)
        raise Unauthorised("The request has no valid token.", remedy="Send Authorization: Bearer <token>.")

    def list(self) -> list[dict[str, object]]:
        with self._store.read() as connection:
            rows = connection.execute(
                select(t.tokens.c.name, t.tokens.c.tenant, t.tokens.c.created_us).order_by(t.tokens.c.name)
            )
            return [dict(row._mapping) for row in rows]

    def revoke(self, name: str) -> None:
        with self._store.write() as connection:
            if connection.execute(delete(t.tokens).where(t.tokens.c.name == name)).rowcount == 0:
                raise Missing(f"There is no token {name!r}.", code="no_token")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
