"""AWS signature version 4 for S3: a request's parts and the time in, its headers out."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, urlsplit

EMPTY = hashlib.sha256(b"").hexdigest()
UNRESERVED = "-_.~"
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True, repr=False)
class S3Keys:
    """Never shown, never stored."""

    access_key: str
    secret_key: str
    session_token: str | None = None


def query_of(parameters: Mapping[str, str]) -> str:
    """As it is signed and sent: sorted, with every reserved character escaped."""
    escaped = sorted(
        (quote(name, safe=UNRESERVED), quote(value, safe=UNRESERVED)) for name, value in parameters.items()
    )
    return "&".join(f"{name}={value}" for name, value in escaped)


def signed(
    method: str, url: str, headers: Mapping[str, str], digest: str, keys: S3Keys, region: str, now: datetime
) -> dict[str, str]:
    """The headers to send the request with. `digest` is the SHA-256 of its body; `url` holds its query as `query_of`."""
    parts, stamp = urlsplit(url), now.strftime("%Y%m%dT%H%M%SZ")
    sent = {name.lower(): value for name, value in headers.items()}
    sent |= {"host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    if keys.session_token:
        sent["x-amz-security-token"] = keys.session_token
    names = ";".join(sorted(sent))
    canonical = "\n".join(
        [method, parts.path, parts.query, *(f"{name}:{sent[name].strip()}" for name in sorted(sent)), "", names, digest]
    )
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    to_sign = "\n".join([_ALGORITHM, stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{keys.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    credential = f"Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    del sent["host"]
    return {**sent, "authorization": f"{_ALGORITHM} {credential}"}
