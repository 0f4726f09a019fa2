"""The refusal that every limit of a tenant answers with: it names the limit, its value, the use and what to do."""

from millrace.model.errors import Exceeded

# When somebody has to remove something first.
REMOVAL_SECONDS = 60.0


def over_limit(
    tenant: str,
    name: str,
    words: str,
    limit: int,
    *,
    used: int | None = None,
    remedy: str = "Ask again when some of them have ended.",
    retry_seconds: float = 1.0,
) -> Exceeded:
    """`name` is the limit's name in the settings; `words` say what is limited."""
    now = "" if used is None else f" It has {used:,}."
    facts = {"quota": name, "limit": str(limit)}
    return Exceeded(
        f"{tenant} may have {limit:,} {words}.{now}",
        remedy=remedy,
        facts=facts if used is None else {**facts, "used": str(used)},
        retry_seconds=retry_seconds,
    )
