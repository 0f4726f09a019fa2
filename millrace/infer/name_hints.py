"""What the name of a column says about its numbers: that they are no amounts, or that they may be moments."""

import re

_NO_AMOUNT = re.compile(
    r"(.*_)?(phone|telephone|telefon|telefono|tel|fax|mobile|handy|cellphone|zip|zipcode|zip_code|postcode|post_code"
    r"|postal_?code|postleitzahl|plz)(_?(no|nr|number|nummer|code))?(_[0-9a-z]+)?",
    re.IGNORECASE,
)
_MOMENT = re.compile(
    r"(.*_)?(ts|time|timestamp|epoch|at|date|when|created|updated|modified|millis|seconds|ms)(_ms|_s)?", re.IGNORECASE
)
_SECONDS = (946_684_800, 2_147_483_647)


def is_no_amount(name: str) -> bool:
    """Whether numbers of this name are dialled or written on letters. A later one may have a leading zero."""
    return _NO_AMOUNT.fullmatch(name) is not None


def since_1970(name: str, low: int, high: int) -> str | None:
    """The unit, if the numbers seem to be moments of this century."""
    if _MOMENT.fullmatch(name) is None:
        return None
    for unit, factor in (("seconds", 1), ("milliseconds", 1000), ("microseconds", 1_000_000)):
        if _SECONDS[0] * factor <= low and high <= _SECONDS[1] * factor:
            return unit
    return None
