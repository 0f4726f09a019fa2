"""Tokens: made, listed and revoked by operators, and by admins for their own tenant."""

import time
from datetime import timedelta
from typing import Any

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field

from millrace.api.deps import CallerDep, StoreDep, TokensDep, guarded_router
from millrace.auth.access import allows
from millrace.model.moments import iso
from millrace.model.names import checked_name
from millrace.model.roles import ADMIN, checked_role
from millrace.store.agreements import known_agreement

router = guarded_router(prefix="/v1/tokens", tags=["tokens"])
MOST_DAYS = 3650
_DAY_US = timedelta(days=1) // timedelta(microseconds=1)


class NewToken(BaseModel):
    """Without a role it may do everything where it is; `tables` limits it to some; it expires after `days`."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1, max_length=100)
    tenant: str | None = None
    role: str | None = None
    tables: list[str] | None = Field(default=None, min_length=1, max_length=1000)
    days: float | None = Field(default=None, gt=0, le=MOST_DAYS)


@router.post("", status_code=201)
@allows(ADMIN, audited=True)
def make_token(
    wanted: NewToken, request: Request, caller: CallerDep, store: StoreDep, tokens: TokensDep
) -> dict[str, Any]:
    """The answer holds the token; nobody can see it again."""
    tenant = caller.scope(None if wanted.tenant is None else checked_name("tenant", wanted.tenant))
    if wanted.tenant is not None:
        with store.read() as connection:
            known_agreement(connection, wanted.tenant)
    request.state.about_tenant = tenant
    tables = None if wanted.tables is None else tuple(checked_name("table", table) for table in wanted.tables)
    role = checked_role(wanted.role, tenant, tables)
    expires_us = None if wanted.days is None else time.time_ns() // 1000 + int(wanted.days * _DAY_US)
    token = tokens.make(wanted.name, tenant, role, tables=tables, expires_us=expires_us, made_by=caller.name)
    shown = {"name": wanted.name, "tenant": tenant, "role": role, "tables": tables, "expires_at": iso(expires_us)}
    return {**shown, "token": token}


@router.get("")
@allows(ADMIN)
def list_tokens(caller: CallerDep, tokens: TokensDep, tenant: str | None = None) -> dict[str, Any]:
    """Their roles, expiry and last use; never the tokens themselves."""
    return {"items": tokens.list(caller.scope(tenant))}


@router.delete("/{name}", status_code=204)
@allows(ADMIN, audited=True)
def revoke_token(name: str, request: Request, caller: CallerDep, tokens: TokensDep, tenant: str | None = None) -> None:
    request.state.about_tenant = about = caller.scope(tenant)
    tokens.revoke(name, about)
