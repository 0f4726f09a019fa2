"""Webhooks: which events of a tenant are sent where. A secret is shown once, in the answer that made it."""

import asyncio
import time
from typing import Any

from pydantic import Field

from millrace.api.bookkeeping import surely
from millrace.api.deps import LimitsDep, PrivateTargetsDep, SharesDep, StoreDep, guarded_router
from millrace.api.parameters import RequestBody
from millrace.api.shares import Shares
from millrace.auth.access import allows
from millrace.model.addresses import Networks
from millrace.model.errors import MillraceError, Unavailable
from millrace.model.moments import iso
from millrace.model.names import new_id
from millrace.model.roles import ADMIN
from millrace.notify.attempt import answer_text, send_event
from millrace.notify.subscriptions import NewSubscription, Subscriptions
from millrace.outbound.addresses import Judged, parse_target

router = guarded_router(prefix="/v1/tenants/{tenant}/subscriptions", tags=["webhooks"])
LOOK_UP_SECONDS = 5.0
LONGEST_OVERLAP_SECONDS = 30 * 86_400


class Changes(RequestBody):
    """What is left out stays as it is."""

    url: str | None = None
    types: list[str] | None = None
    order: str | None = None
    enabled: bool | None = None


class Rotation(RequestBody):
    overlap_seconds: float = Field(default=86_400, ge=0, le=LONGEST_OVERLAP_SECONDS)


@router.post("", status_code=201)
@allows(ADMIN, audited=True)
async def add_subscription(
    tenant: str,
    wanted: NewSubscription,
    store: StoreDep,
    private_targets: PrivateTargetsDep,
    shares: SharesDep,
    limits: LimitsDep,
) -> dict[str, Any]:
    """Sends the tenant's events from now on; the answer holds the secret that signs them."""
    await check_url(private_targets, wanted.url, shares)
    kept = Subscriptions(store, limits.subscriptions)
    secret = await asyncio.to_thread(kept.add, tenant, wanted)
    return {**await surely(kept.document, tenant, wanted.name), "secret": secret}


async def check_url(private_targets: Networks, url: str, shares: Shares) -> None:
    """Says at once what every delivery would say; a name that cannot be resolved now may be so later."""
    target = parse_target(url)
    try:
        async with asyncio.timeout(LOOK_UP_SECONDS):
            await shares.look_ups.run(Judged(tuple(private_targets)), target.host)
    except (Unavailable, TimeoutError):
        return


@router.get("")
@allows(ADMIN)
def list_subscriptions(tenant: str, store: StoreDep) -> dict[str, Any]:
    return {"items": Subscriptions(store).documents(tenant)}


@router.get("/{name}")
@allows(ADMIN)
def show_subscription(tenant: str, name: str, store: StoreDep) -> dict[str, Any]:
    """How it is doing: what arrived last, what went wrong last, how much waits and for how long."""
    return Subscriptions(store).document(tenant, name)


@router.patch("/{name}")
@allows(ADMIN, audited=True)
async def change_subscription(
    tenant: str, name: str, changes: Changes, store: StoreDep, private_targets: PrivateTargetsDep, shares: SharesDep
) -> dict[str, Any]:
    """`enabled: false` is a pause: what happens meanwhile is sent when it is over."""
    if changes.url is not None:
        await check_url(private_targets, changes.url, shares)
    kept = Subscriptions(store)
    await asyncio.to_thread(kept.change, tenant, name, changes.model_dump(exclude_none=True))
    return await surely(kept.document, tenant, name)


@router.delete("/{name}", status_code=204)
@allows(ADMIN, audited=True)
def remove_subscription(tenant: str, name: str, store: StoreDep) -> None:
    Subscriptions(store).remove(tenant, name)


@router.post("/{name}/rotate")
@allows(ADMIN, audited=True)
def rotate_secret(tenant: str, name: str, store: StoreDep, rotation: Rotation | None = None) -> dict[str, Any]:
    """A new secret; until the overlap is over, events are signed with the old one too."""
    kept = Subscriptions(store)
    secret = kept.rotate(tenant, name, (rotation or Rotation()).overlap_seconds)
    return {**kept.document(tenant, name), "secret": secret}


@router.post("/{name}/test")
@allows(ADMIN, audited=True)
async def send_test(tenant: str, name: str, store: StoreDep, private_targets: PrivateTargetsDep) -> dict[str, Any]:
    """Sends one signed event of type millrace.webhook.test now, whatever is queued, and says what came of it."""
    subscription = await asyncio.to_thread(Subscriptions(store).find, tenant, name)
    begun = time.monotonic()
    status, error = None, None
    try:
        answer = await send_event(subscription, _test_event(tenant, name), private_targets)
        status = answer.status
        if not answer.is_success:
            error = {"code": "answered", "message": answer_text(answer)}
    except MillraceError as failed:
        error = {"code": failed.code, "message": failed.message}
    seconds = round(time.monotonic() - begun, 3)
    return {"delivered": error is None, "status": status, "error": error, "seconds": seconds}


def _test_event(tenant: str, name: str) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": new_id("test"),
        "source": f"/millrace/tenants/{tenant}",
        "type": "millrace.webhook.test",
        "subject": name,
        "time": iso(time.time_ns() // 1000),
        "datacontenttype": "application/json",
        "data": {},
    }
