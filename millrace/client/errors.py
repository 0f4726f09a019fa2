"""The errors that a call to the platform may raise.

MillraceError
├── Problem            the platform answered with a problem: status, code, remedy, and the import it made if any
│   └── Unready        … that may be gone later (502, 503, 504); also Unavailable
└── Unavailable
    └── Unreachable    no answer at all
"""

import json
import re
from http import HTTPStatus
from typing import Any

from millrace.model.errors import MillraceError, Unavailable

# What an HTTP client says if the server ends the connection instead of answering, as one that expects TLS does.
_HUNG_UP = re.compile("disconnected|reset by peer|without response|closed connection", re.IGNORECASE)
_UNREADY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)


class Problem(MillraceError):
    """The platform's problem+json as an exception."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: str,
        remedy: str = "",
        import_id: str | None = None,
        retry_seconds: float = 0.0,
    ) -> None:
        """`retry_seconds`: before that, the same request cannot succeed."""
        super().__init__(detail, remedy=remedy, code=code)
        self.status = status
        self.detail = detail
        self.import_id = import_id
        self.retry_seconds = retry_seconds

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status >= HTTPStatus.INTERNAL_SERVER_ERROR or self.status == HTTPStatus.TOO_MANY_REQUESTS


class Unready(Problem, Unavailable):
    """A part of the platform does not answer now."""


class Unreachable(Unavailable):
    """Nothing answers at the platform's address, or the connection broke."""

    code = "unreachable"
    may_pass = True

    def __init__(self, url: str, cause: object) -> None:
        super().__init__(f"{url} cannot be reached: {cause}.", remedy=_remedy(url, str(cause)))


def _remedy(url: str, cause: str) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in cause:
        if "mismatch" in cause:
            return "Set MILLRACE_URL to https:// and a name that the platform's certificate has."
        if "expired" in cause:
            return "Ask the platform's operator to renew its certificate."
        return "Set MILLRACE_CA_FILE to the certificates of the authority that vouches for it."
    if url.startswith("http:") and _HUNG_UP.search(cause):
        return "If the platform speaks TLS, write https:// instead of http:// in MILLRACE_URL; see `millrace doctor`."
    return "Start it with `millrace up`, or set MILLRACE_URL and MILLRACE_TOKEN; see `millrace doctor`."


def problem_from(status: int, body: bytes) -> Problem:
    """The problem a response of 400 or more stands for, whatever its body holds."""
    fields = _object(body)
    kind = Unready if status in _UNREADY else Problem
    text = body.decode(errors="replace").strip()[:500]
    detail = fields.get("detail") or fields.get("title") or text or f"The platform answered {status}."
    imported, retry = fields.get("import"), fields.get("retry_after_seconds")
    return kind(
        status,
        str(detail),
        code=str(fields.get("code") or f"http_{status}"),
        remedy=str(fields.get("remedy") or ""),
        import_id=imported if isinstance(imported, str) else None,
        retry_seconds=float(retry) if isinstance(retry, int | float) else 0.0,
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
