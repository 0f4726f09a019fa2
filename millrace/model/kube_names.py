"""The name of a tenant on Kubernetes.

A tenant's name may hold capitals and '_' and end in '-', which Kubernetes allows in no name; where a name must be changed or
cut, a digest of the whole is added, and a name that looks as if it ended in one gets one too: two tenants never meet."""

import hashlib
import re

from millrace.model.names import checked_name

# A CronJob's name may have 52 characters, a namespace's 63, which the prefix shares.
MAX_DNS_NAME = 40
_DIGEST_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
_DIGEST_LENGTH = 10
_PLAIN = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_LOOKS_DIGESTED = re.compile(rf".*-[{_DIGEST_LETTERS}]{{{_DIGEST_LENGTH}}}")


def dns_name(tenant: str) -> str:
    """A DNS-1123 label that no other tenant has."""
    name = checked_name("tenant", tenant)
    if _PLAIN.fullmatch(name) and len(name) <= MAX_DNS_NAME and not _LOOKS_DIGESTED.fullmatch(name):
        return name
    readable = name.lower().replace("_", "-")[: MAX_DNS_NAME - _DIGEST_LENGTH - 1].rstrip("-")
    return f"{readable}-{_digest(name)}"


def _digest(name: str) -> str:
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
    return "".join(_DIGEST_LETTERS[number >> 5 * place & 31] for place in range(_DIGEST_LENGTH))


def tenant_namespace(prefix: str, tenant: str) -> str:
    return f"{prefix}-{dns_name(tenant)}"
