"""Signatures as Standard Webhooks wants them: a secret, an event's id, a time and a body in; the three headers out."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence

PREFIX = "whsec_"
SECRET_BYTES = 32


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signature(secret: str, event_id: str, timestamp: int, body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = hmac.new(key, f"{event_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(signed).decode()


def signed_headers(valid: Sequence[str], event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """One signature per valid secret: a receiver that knows one of them can check."""
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signature(secret, event_id, timestamp, body) for secret in valid),
    }
