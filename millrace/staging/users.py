"""Which user a tenant's program runs as: a tenant in, a user id out; nobody where the platform cannot change users."""

import hashlib
import os

# Far from the users that people and packages have; the tenant's name decides which one it is.
FIRST_USER, USERS = 1 << 30, 1 << 30


def user_of(tenant: str) -> int:
    return FIRST_USER + int.from_bytes(hashlib.sha256(tenant.encode()).digest()[:4], "big") % USERS


def owner_of(tenant: str) -> int | None:
    """The user that owns the tenant's folders; None: the platform's own."""
    return user_of(tenant) if may_change_user() else None


def may_change_user() -> bool:
    """Only root may, and only where these user ids exist: a container may have been given a few only."""
    return os.geteuid() == 0 and _has_users()


def _has_users() -> bool:
    try:
        with open("/proc/self/uid_map") as lines:
            ranges = [tuple(map(int, line.split())) for line in lines]
    except OSError:
        return True
    return any(first <= FIRST_USER and first + count >= FIRST_USER + USERS for first, _, count in ranges)
