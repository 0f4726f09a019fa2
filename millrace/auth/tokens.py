"""Who is asking: bearer tokens, kept as digests only. What a caller may not see does not exist for it."""

import hashlib
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, delete, exists, func, or_, select, update

from millrace.auth.makers import delete_tokens, made_with, note_maker
from millrace.model.errors import Clash, Missing, Unauthorised
from millrace.model.limits import REMOVAL_SECONDS, over_limit
from millrace.model.moments import iso
from millrace.model.roles import ADMIN, OPERATOR, VIEWER, checked_role
from millrace.settings import LimitSettings
from millrace.store import tables as t
from millrace.store.engine import ControlStore, insert_new
from millrace.store.tables import grants

PREFIX = "mr_"
# A token that another server revoked may be accepted here for this time.
RECENT_SECONDS = 5.0
MOST_RECENT = 10_000
SOON_SECONDS = 0.5
# Of the tenants that a message lists.
MOST_NAMED = 10
# How often the last use of tokens is written.
USES_SECONDS = 60.0

_TOKENS = select(t.tokens, *(column for column in grants.columns if column.name != "digest")).outerjoin(
    grants, grants.c.digest == t.tokens.c.digest
)


@dataclass(frozen=True, slots=True)
class Caller:
    """`tenant` is None for those of the platform; `tables` None for all tables of the tenant."""

    name: str
    tenant: str | None
    role: str = VIEWER
    tables: frozenset[str] | None = None
    expires_us: int | None = None
    digest: str = field(default="", repr=False)

    def must_see(self, tenant: str) -> None:
        if self.tenant not in (None, tenant):
            raise Missing(f"There is no tenant {tenant!r}.", code="no_tenant")

    def scope(self, tenant: str | None) -> str | None:
        """Whose things the caller asks for: the tenant's that it names, else its own; None: everybody's."""
        if tenant is not None:
            self.must_see(tenant)
        return tenant or self.tenant

    def sees_table(self, table: str) -> bool:
        return self.tables is None or table in self.tables

    def must_see_table(self, tenant: str, table: str) -> None:
        if not self.sees_table(table):
            raise Missing(
                f"There is no table {tenant}/{table}.", remedy="Apply its declaration first.", code="no_table"
            )


class Tokens:
    def __init__(self, store: ControlStore, most_of_tenant: int = LimitSettings().tokens) -> None:
        self._store = store
        self._most_of_tenant = most_of_tenant
        self._recent: dict[str, tuple[Caller, float]] = {}
        self._uses: dict[str, int] = {}
        self._lock = threading.Lock()

    def make(
        self,
        name: str,
        tenant: str | None,
        role: str | None = None,
        *,
        tables: Sequence[str] | None = None,
        expires_us: int | None = None,
        maker: Caller | None = None,
    ) -> str:
        """A new token, which is shown only here. Its name is unique among the tenant's tokens. It goes with its maker's."""
        only = None if tables is None else tuple(tables)
        role = checked_role(role, tenant, only)
        token = PREFIX + secrets.token_urlsafe(32)
        with self._store.write() as connection:
            taken = select(t.tokens.c.digest).where(t.tokens.c.name == name, t.tokens.c.tenant == tenant)
            if connection.execute(taken).first() is not None:
                raise Clash(f"There is a token {name!r} already.", remedy="Revoke it, or choose another name.")
            if tenant is not None:
                self._refuse_one_more(connection, tenant)
            _keep(connection, token, name, tenant)
            grant = {"role": role, "tables": only, "expires_us": expires_us, "last_used_us": None}
            made_by = "" if maker is None else maker.name
            insert_new(connection, grants, [{"digest": _digest(token), **grant, "made_by": made_by}])
            if maker is not None:
                note_maker(connection, _digest(token), maker.digest)
        return token

    def _refuse_one_more(self, connection: Connection, tenant: str) -> None:
        """Expired tokens do not count."""
        expires = grants.c.expires_us
        lasts = or_(expires.is_(None), expires > time.time_ns() // 1000)
        joined = t.tokens.outerjoin(grants, grants.c.digest == t.tokens.c.digest)
        count = select(func.count()).select_from(joined).where(t.tokens.c.tenant == tenant, lasts)
        used = connection.execute(count).scalar_one()
        if used >= self._most_of_tenant:
            raise over_limit(
                tenant, "tokens", "tokens", self._most_of_tenant, used=used, remedy="Revoke some first.",
                retry_seconds=REMOVAL_SECONDS,
            )  # fmt: skip

    def keep(self, token: str, name: str, tenant: str | None) -> None:
        """Stores a token that was made elsewhere, with the highest role of its tenant or of the platform. One that was stored
        so before, and is not this one, is no longer valid."""
        kept = select(t.tokens.c.digest).where(
            t.tokens.c.name == name,
            t.tokens.c.tenant.is_not_distinct_from(tenant),
            ~exists().where(grants.c.digest == t.tokens.c.digest),
        )
        with self._store.write() as connection:
            others = [digest for digest in connection.execute(kept).scalars() if digest != _digest(token)]
            connection.execute(delete(t.tokens).where(t.tokens.c.digest.in_(others)))
            _keep(connection, token, name, tenant)
        self._recent.clear()

    def caller(self, authorization: str | None) -> Caller:
        scheme, _, token = (authorization or "").partition(" ")
        caller = self._known(_digest(token.strip())) if scheme.lower() == "bearer" and token else None
        if caller is None:
            raise Unauthorised("The request has no valid token.", remedy="Send Authorization: Bearer <token>.")
        now_us = time.time_ns() // 1000
        if caller.expires_us is not None and caller.expires_us <= now_us:
            who = "An operator" if caller.tenant is None else "An operator, or an admin of the tenant,"
            remedy = f"{who} makes a new one: `millrace token create NAME`."
            raise Unauthorised(f"The token expired at {iso(caller.expires_us)}.", remedy=remedy, code="expired")
        self._uses[_digest(token.strip())] = now_us
        return caller

    def is_valid(self, authorization: str | None) -> bool:
        """For what lasts longer than a request: whether its token still is what it was when it began."""
        try:
            self.caller(authorization)
        except Unauthorised:
            return False
        return True

    def is_recent(self, authorization: str | None) -> bool:
        """Whether `caller` answers without asking the store."""
        token = (authorization or "").partition(" ")[2].strip()
        found = self._recent.get(_digest(token)) if token else None
        return not token or (found is not None and time.monotonic() + SOON_SECONDS < found[1])

    def _known(self, digest: str) -> Caller | None:
        """The token is found by its digest, so the time this takes reveals nothing about other tokens."""
        caller, until = self._recent.get(digest, (None, 0.0))
        if caller is None or time.monotonic() > until:
            row = self._store.first(_TOKENS.where(t.tokens.c.digest == digest))
            if row is None or not secrets.compare_digest(row.digest, digest):
                return None
            caller = _caller(row)
            if len(self._recent) >= MOST_RECENT:
                self._recent.clear()
            self._recent[digest] = caller, time.monotonic() + RECENT_SECONDS
        return caller

    def note_uses(self) -> None:
        """Writes when each token was last used; to be called once in a while."""
        with self._lock:
            uses, self._uses = self._uses, {}
        if not uses:
            return
        note = update(grants).where(grants.c.digest == bindparam("of")).values(last_used_us=bindparam("at"))
        with self._store.write() as connection:
            connection.execute(note, [{"of": digest, "at": at} for digest, at in uses.items()])

    def list(self, tenant: str | None = None) -> list[dict[str, Any]]:
        """Of a tenant, or of all."""
        wanted = _TOKENS.order_by(t.tokens.c.tenant, t.tokens.c.name)
        rows = self._store.rows(wanted if tenant is None else wanted.where(t.tokens.c.tenant == tenant))
        return [self._document(row) for row in rows]

    def _document(self, row: Any) -> dict[str, Any]:
        caller = _caller(row)
        return {
            "name": row.name,
            "tenant": row.tenant,
            "role": caller.role,
            "tables": None if caller.tables is None else sorted(caller.tables),
            "created_us": row.created_us,
            "created_at": iso(row.created_us),
            "expires_at": iso(row.expires_us),
            "last_used_at": iso(self._uses.get(row.digest, row.last_used_us)),
            "made_by": row.made_by or "",
        }

    def revoke(self, name: str, tenant: str | None) -> Sequence[dict[str, Any]]:
        """The token of that name of the tenant, None: of the platform, and all that were made with it. Returns which."""
        with self._store.write() as connection:
            owned = t.tokens.c.tenant.is_not_distinct_from(tenant)
            found = connection.execute(select(t.tokens.c.digest).where(t.tokens.c.name == name, owned)).first()
            if found is None:
                raise _no_token(connection, name, tenant)
            digests = made_with(connection, found.digest)
            names = select(t.tokens.c.name, t.tokens.c.tenant).where(t.tokens.c.digest.in_(digests))
            gone = sorted((row.tenant or "", row.name) for row in connection.execute(names))
            delete_tokens(connection, digests)
        # After the commit: a request that has read the token meanwhile must read it again.
        self._recent.clear()
        return [{"name": name, "tenant": owner or None} for owner, name in gone]


def _no_token(connection: Connection, name: str, tenant: str | None) -> Missing:
    if tenant is not None:
        return Missing(f"There is no token {name!r}.", code="no_token")
    others = select(t.tokens.c.tenant).where(t.tokens.c.name == name).order_by(t.tokens.c.tenant).limit(MOST_NAMED)
    owners = ", ".join(connection.execute(others).scalars())
    remedy = f"Name the tenant. These have a token of that name: {owners}." if owners else ""
    return Missing(f"The platform itself has no token {name!r}.", remedy=remedy, code="no_token")


def _keep(connection: Connection, token: str, name: str, tenant: str | None) -> None:
    row = {"digest": _digest(token), "name": name, "tenant": tenant, "created_us": time.time_ns() // 1000}
    insert_new(connection, t.tokens, [row])


def _caller(row: Any) -> Caller:
    role = row.role or (OPERATOR if row.tenant is None else ADMIN)
    tables = None if row.tables is None else frozenset(row.tables)
    return Caller(row.name, row.tenant, role, tables, row.expires_us, row.digest)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
