"""What a cluster says no with.

Refused
├── ClusterRefused     forbidden, invalid or gone: the answer's own sentence, and what to do
└── FieldConflict      another manager owns a field that we would change
Unavailable
└── ClusterUnreachable nobody answers, or not in time
"""

import re
from collections.abc import Mapping
from typing import Any

from millrace.model.errors import Clash, Refused, Unavailable

_UNAUTHORISED, _FORBIDDEN, _MISSING, _CONFLICT, _INVALID = 401, 403, 404, 409, 422
_REMEDIES = {
    _UNAUTHORISED: "Log in to the cluster again, or name another --context.",
    _FORBIDDEN: "Use an account that may do this: deploy/components/apply lists the rights that this takes.",
    _MISSING: "See whether the cluster serves this kind, and whether the namespace is there.",
    _INVALID: "Correct the agreement or the settings; a claim can grow but neither shrink nor change its class.",
}


class ClusterRefused(Refused):
    code = "cluster_refused"


class FieldConflict(Clash):
    code = "field_conflict"


class ClusterUnreachable(Unavailable):
    code = "cluster_unreachable"

    def __init__(self, server: str, why: str) -> None:
        super().__init__(
            f"The cluster at {server} does not answer: {why}.",
            remedy="See whether it runs, and which --context is meant.",
        )


def refusal_of(status: int, document: Mapping[str, Any]) -> Refused:
    """A `Status` object of the API server as an error of ours."""
    message = str(document.get("message") or f"The cluster answered {status}")
    owners = _owners(document) if status == _CONFLICT else {}
    if owners:
        fields = "; ".join(f"{field} is {owner}'s" for field, owner in owners.items())
        return FieldConflict(
            f"Another manager owns what would change: {fields}.",
            remedy="Let go of these fields there, or take them over with --force-conflicts.",
        )
    return ClusterRefused(f"{message.rstrip('.')}.", remedy=_REMEDIES.get(status, ""))


def _owners(document: Mapping[str, Any]) -> dict[str, str]:
    causes = (document.get("details") or {}).get("causes") or []
    found = [one for one in causes if one.get("reason") == "FieldManagerConflict"]
    # `conflict with "kubectl" using apps/v1` names the manager in quotes.
    return {str(one.get("field")): re.sub('.*?"(.*?)".*', r"\1", str(one.get("message"))) for one in found}
