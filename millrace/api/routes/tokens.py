"""Tokens: made, listed and revoked by operators, and by admins for their own tenant."""

import time
from datetime import timedelta
from typing import Any

from fastapi import Request
from pydantic import Field

from millrace.api.deps import CallerDep, StoreDep, TokenDaysDep, TokensDep, guarded_router
from millrace.api.parameters import RequestBody
from millrace.auth.access import allows
from millrace.auth.tokens import Caller
from millrace.model.errors import Forbidden
from millrace.model.moments import iso
from millrace.model.names import checked_name
from millrace.model.roles import ADMIN, checked_role
from millrace.settings import MOST_TOKEN_DAYS
from millrace.store.agreements import known_agreement

router = guarded_router(prefix="/v1/tokens", tags=["tokens"])
_DAY_US = timedelta(days=1) // timedelta(microseconds=1)


class NewToken(RequestBody):
    """Without a role it may do everything where it is; `tables` limits it to some; it expires after `days`, or after the days
    that the operator has set (MILLRACE_API__TOKEN_DAYS)."""

    name: str = Field(min_length=1, max_length=100)
    tenant: str | None = None
    role: str | None = None
    tables: list[str] | None = Field(default=None, min_length=1, max_length=1000)
    days: float | None = Field(default=None, gt=0, le=MOST_TOKEN_DAYS)


@router.post("", status_code=201)
@allows(ADMIN, audited=True)
def make_token(
    wanted: NewToken, request: Request, caller: CallerDep, store: StoreDep, tokens: TokensDep, token_days: TokenDaysDep
) -> dict[str, Any]:
    """The answer holds the token; nobody can see it again. It does not outlive the token that makes it."""
    tenant = caller.scope(None if wanted.tenant is None else checked_name("tenant", wanted.tenant))
    if wanted.tenant is not None:
        with store.read() as connection:
            known_agreement(connection, wanted.tenant)
    request.state.about_tenant = tenant
    tables = None if wanted.tables is None else tuple(checked_name("table", table) for table in wanted.tables)
    role = checked_role(wanted.role, tenant, tables)
    expires_us = _expiry(wanted.days, token_days, caller)
    token = tokens.make(wanted.name, tenant, role, tables=tables, expires_us=expires_us, maker=caller)
    shown = {"name": wanted.name, "tenant": tenant, "role": role, "tables": tables, "expires_at": iso(expires_us)}
    return {**shown, "token": token}


def _expiry(days: float | None, default_days: float, caller: Caller) -> int:
    now_us = time.time_ns() // 1000
    expires_us = now_us + int((default_days if days is None else days) * _DAY_US)
    if caller.expires_us is None or expires_us <= caller.expires_us:
        return expires_us
    if days is None:
        return caller.expires_us
    left = (caller.expires_us - now_us) / _DAY_US
    raise Forbidden(
        f"The token would outlive yours, which expires at {iso(caller.expires_us)}.",
        remedy=f"Ask for {left:.4g} days or fewer, or for none: then it expires with yours.",
        code="outlives_its_maker",
    )


@router.get("")
@allows(ADMIN)
def list_tokens(caller: CallerDep, tokens: TokensDep, tenant: str | None = None) -> dict[str, Any]:
    """Their roles, expiry and last use; never the tokens themselves."""
    return {"items": tokens.list(caller.scope(tenant))}


@router.delete("/{name}")
@allows(ADMIN, audited=True)
def revoke_token(
    name: str, request: Request, caller: CallerDep, tokens: TokensDep, tenant: str | None = None
) -> dict[str, Any]:
    """Also revokes the tokens that were made with it; the answer lists all of them. An operator that names no tenant means a
    token of the platform."""
    request.state.about_tenant = about = caller.scope(tenant)
    return {"name": name, "tenant": about, "revoked": tokens.revoke(name, about)}
