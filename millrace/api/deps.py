"""What every route is handed: the platform, the sessions, the caller."""

from typing import Annotated

from fastapi import Depends, Request
from starlette.requests import HTTPConnection

from millrace.api.platform import Platform
from millrace.api.uploads.sessions import Sessions
from millrace.auth.access import ACCESS, caller_of, endpoint_of
from millrace.auth.tokens import Caller


def _platform(request: Request) -> Platform:
    platform: Platform = request.app.state.platform
    return platform


def _sessions(request: Request) -> Sessions:
    sessions: Sessions = request.app.state.sessions
    return sessions


def _caller(request: Request) -> Caller:
    """Also checks that the caller may call this endpoint at all, and see the tenant and the table its path names."""
    return caller_of(request, _platform(request).tokens)


async def within_quota(connection: HTTPConnection) -> None:
    """A tenant's own requests, no more of them in a second than were agreed. An operator's are not counted."""
    access = ACCESS.get(endpoint_of(connection))
    if access is None or access.least is None or connection.scope["type"] != "http":
        return
    platform: Platform = connection.app.state.platform
    caller = caller_of(connection, platform.tokens)
    if caller.tenant is not None:
        platform.quotas.refuse_request(caller.tenant)


PlatformDep = Annotated[Platform, Depends(_platform)]
SessionsDep = Annotated[Sessions, Depends(_sessions)]
CallerDep = Annotated[Caller, Depends(_caller)]
