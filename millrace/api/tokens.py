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
# So long may a token that another server revoked still be honoured here.
RECENT_SECONDS = 5.0


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
        self._recent: dict[str, tuple[Caller, float]] = {}

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
        caller = self._known(_digest(token.strip())) if scheme.lower() == "bearer" and token else None
        if caller is None:
            raise Unauthorised("The request has no valid token.", remedy="Send Authorization: Bearer <token>.")
        return caller

    def _known(self, digest: str) -> Caller | None:
        caller, until = self._recent.get(digest, (None, 0.0))
        if caller is None or time.monotonic() > until:
            with self._store.read() as connection:
                row = connection.execute(select(t.tokens).where(t.tokens.c.digest == digest)).first()
            caller = None if row is None else Caller(row.name, row.tenant)
            if caller is not None:
                self._recent[digest] = caller, time.monotonic() + RECENT_SECONDS
        return caller

    def list(self) -> list[dict[str, object]]:
        with self._store.read() as connection:
            rows = connection.execute(
                select(t.tokens.c.name, t.tokens.c.tenant, t.tokens.c.created_us).order_by(t.tokens.c.name)
            )
            return [dict(row._mapping) for row in rows]

    def revoke(self, name: str) -> None:
        with self._store.write() as connection:
            self._recent.clear()
            if connection.execute(delete(t.tokens).where(t.tokens.c.name == name)).rowcount == 0:
                raise Missing(f"There is no token {name!r}.", code="no_token")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
