"""One attempt to deliver one event: signs it, sends it, and decides the outcome from the answer."""

import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

import orjson

from millrace.model.addresses import Networks
from millrace.model.errors import MillraceError
from millrace.model.moments import iso
from millrace.notify.queue import EventDelivered, EventDelivery, EventFailed, Outcome
from millrace.notify.retry import RetryPolicy
from millrace.notify.subscription import Subscription
from millrace.outbound.addresses import Target
from millrace.outbound.http import Answer, post
from millrace.outbound.signing import signed_headers

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
_ASK_FOR_TIME = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)

Post = Callable[[Target, Mapping[str, str], bytes, Networks], Awaitable[Answer]]


async def attempt(
    subscription: Subscription, delivery: EventDelivery, pace: RetryPolicy, allowed: Networks, send: Post = post
) -> Outcome:
    if delivery.event is None:
        return _failed(subscription, delivery, {"message": "The event is no longer kept."}, None)
    try:
        answer = await send_event(subscription, delivery.event, allowed, send)
    except MillraceError as failed:
        return _later(subscription, delivery, pace, {"code": failed.code, "message": failed.message}, None)
    if answer.is_success:
        return EventDelivered(subscription.id, delivery, time.time_ns() // 1000)
    error = {"code": "answered", "status": answer.status, "message": answer_text(answer)}
    if answer.status == HTTPStatus.GONE:
        return _failed(subscription, delivery, error, 0, is_gone=True)
    return _later(subscription, delivery, pace, error, answer.retry_after if answer.status in _ASK_FOR_TIME else None)


async def send_event(subscription: Subscription, event: dict[str, Any], allowed: Networks, send: Post = post) -> Answer:
    """The headers. The id is the same for all attempts; the time is that of this attempt."""
    body = orjson.dumps(event)
    headers = signed_headers(subscription.valid_secrets(), str(event["id"]), int(time.time()), body)
    return await send(subscription.target, {**headers, "Content-Type": CONTENT_TYPE}, body, allowed)


def answer_text(answer: Answer) -> str:
    if 300 <= answer.status < 400:
        return f"It answered {answer.status}; redirects are not followed."
    if answer.status == HTTPStatus.GONE:
        return f"It answered {answer.status}: it wants no more events. The subscription is off."
    return f"It answered {answer.status}."


def _later(
    subscription: Subscription,
    delivery: EventDelivery,
    pace: RetryPolicy,
    error: dict[str, Any],
    retry_after: float | None,
) -> EventFailed:
    now = time.time_ns() // 1000
    next_us = now + int(pace.pause(delivery.attempts + 1, retry_after) * 1e6)
    too_old = pace.is_too_old((next_us - delivery.since_us) / 1e6)
    return _failed(subscription, delivery, error, None if too_old else next_us)


def _failed(
    subscription: Subscription,
    delivery: EventDelivery,
    error: dict[str, Any],
    next_us: int | None,
    *,
    is_gone: bool = False,
) -> EventFailed:
    now = time.time_ns() // 1000
    event = (delivery.event or {}).get("id")
    shown = {**error, "event": event, "attempt": delivery.attempts + 1, "at": iso(now), "given_up": next_us is None}
    return EventFailed(subscription.id, delivery, now, shown, next_us, is_gone)
