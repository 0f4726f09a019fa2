"""A subscription: which events of a tenant go where, in which order, signed with which secrets. Refuses invalid ones."""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from millrace.model.errors import Invalid
from millrace.outbound.addresses import Target, parse_target
from millrace.outbound.signing import new_secret

IN_ORDER, AS_THEY_COME = "in_order", "as_they_come"
ORDERS = (IN_ORDER, AS_THEY_COME)
EVERYTHING = "*"
MOST_TYPES = 20
_TYPE_PREFIX = "millrace."
_PATTERN = re.compile(r"(?:[a-z_]{1,40}|\*)(?:\.(?:[a-z_]{1,40}|\*)){0,5}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Subscription:
    """`secrets`: the newest first, each with the microsecond when it ends; None for the current one."""

    id: str
    tenant: str
    name: str
    url: str
    types: tuple[str, ...]
    order: str
    enabled: bool
    secrets: tuple[tuple[str, int | None], ...]

    @property
    def target(self) -> Target:
        return parse_target(self.url)

    def wants(self, event_type: str) -> bool:
        return any(_matches(pattern, event_type.removeprefix(_TYPE_PREFIX)) for pattern in self.types)

    def valid_secrets(self) -> list[str]:
        now = time.time_ns() // 1000
        return [secret for secret, until_us in self.secrets if until_us is None or until_us > now]


def from_row(row: Mapping[Any, Any]) -> Subscription:
    return Subscription(
        id=row["id"],
        tenant=row["tenant"],
        name=row["name"],
        url=row["url"],
        types=tuple(row["types"]),
        order=row["ordering"],
        enabled=row["enabled"],
        secrets=tuple((each["secret"], each["until_us"]) for each in row["secrets"]),
    )


def checked_types(types: Iterable[str]) -> list[str]:
    patterns = [pattern.removeprefix(_TYPE_PREFIX) for pattern in types]
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise Invalid(
                f"{pattern[:60]!r} names no events.", remedy="Write span.ended, import.* or *.", code="bad_types"
            )
    if not 1 <= len(patterns) <= MOST_TYPES:
        raise Invalid(f"A subscription has 1 to {MOST_TYPES} event types.", remedy="Write * for all.", code="bad_types")
    return patterns


def checked_order(order: str) -> str:
    if order not in ORDERS:
        raise Invalid(f"{order[:40]!r} is no order.", remedy=f"Choose {IN_ORDER} or {AS_THEY_COME}.", code="bad_order")
    return order


def first_secret() -> list[dict[str, Any]]:
    return [{"secret": new_secret(), "until_us": None}]


def rotated(before: list[dict[str, Any]], until_us: int, now_us: int) -> list[dict[str, Any]]:
    """Adds a new secret. The others end at the given moment, or at their earlier end."""
    kept = [{**each, "until_us": min(each["until_us"] or until_us, until_us)} for each in before]
    return first_secret() + [each for each in kept if each["until_us"] > now_us]


def _matches(pattern: str, event_type: str) -> bool:
    """`*` stands for one or more words."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".+"), event_type) is not None
