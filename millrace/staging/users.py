"""The user that a tenant's program runs as: a tenant in, a user id out; None where the platform cannot change users."""

import hashlib
import os

# Far from the ids of people and packages. The id follows from the tenant's name.
FIRST_USER, USERS = 1 << 30, 1 << 30


def user_of(tenant: str) -> int:
    return FIRST_USER + int.from_bytes(hashlib.sha256(tenant.encode()).digest()[:4], "big") % USERS


def owner_of(tenant: str) -> int | None:
    """The user that owns the tenant's folders; None: the platform's own."""
    return user_of(tenant) if may_change_user() else None


def may_change_user() -> bool:
    """Only root can, and only where these ids exist: a container may have few of them."""
    return os.geteuid() == 0 and _has_users()


def _has_users() -> bool:
    try:
        with open("/proc/self/uid_map") as lines:
            ranges = [tuple(map(int, line.split())) for line in lines]
    except OSError:
        return True
    return any(first <= FIRST_USER and first + count >= FIRST_USER + USERS for first, _, count in ranges)
