"""Why something did not happen. The kind decides what the caller may do; the one HTTP table is api/problems.py.

MillraceError
├── Refused            the caller must change the request: code, what, remedy
│   ├── Invalid        the request or the file is wrong
│   ├── Missing        it does not exist, or the caller may not know that it does
│   ├── Clash          it contradicts what is already there
│   ├── TooLarge       over a declared limit
│   ├── TooSlow        the request's body did not arrive in time
│   ├── Unauthorised   no valid token
│   ├── Forbidden      a valid token whose role does not allow it
│   └── Exceeded       over a quota now; the same request may succeed when it frees
├── Overloaded         the server has no turn left for the tenant now; nothing was done, and nothing is wrong with the request
├── Unavailable        a part of the platform does not answer now; the same request may succeed later
├── Corrupt            stored state contradicts itself; stop
└── KeyGone            sealed with a key that no longer exists: nobody can read it
"""

import re

# What Python says of an object that has no text of its own: its address in memory.
_OBJECT = re.compile(r"<([^<>]*?)(?: object)? at 0x[0-9a-fA-F]+>")


def words_of(error: BaseException) -> str:
    """What the error of a library says, for people: without addresses in memory, which are others at every try."""
    return _OBJECT.sub(r"\1", str(error)) or type(error).__name__


class MillraceError(Exception):
    """Carries a stable code for programs, a message for people, and a remedy."""

    code = "error"

    def __init__(self, message: str, *, remedy: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class Refused(MillraceError):
    """`kind` names the class in records; `code` may say more."""

    code = kind = "refused"


class Invalid(Refused):
    code = kind = "invalid"


class Missing(Refused):
    code = kind = "missing"


class Clash(Refused):
    code = kind = "clash"


class TooLarge(Refused):
    code = kind = "too_large"


class TooSlow(Refused):
    code = kind = "too_slow"


class Unauthorised(Refused):
    code = kind = "unauthorised"


class Forbidden(Refused):
    code = kind = "forbidden"


class Exceeded(Refused):
    """`facts`: the quota, its limit and its use. `retry_seconds`: when a retry may succeed."""

    code = "over_quota"
    kind = "exceeded"

    def __init__(self, message: str, *, remedy: str = "", facts: dict[str, str], retry_seconds: float = 1.0) -> None:
        super().__init__(message, remedy=remedy)
        self.facts = facts
        self.retry_seconds = retry_seconds


class Overloaded(MillraceError):
    """To a caller the same as Exceeded. It is not Refused, because nobody has judged the request."""

    code = Exceeded.code

    def __init__(self, message: str, *, remedy: str = "", facts: dict[str, str], retry_seconds: float = 1.0) -> None:
        super().__init__(message, remedy=remedy)
        self.facts = facts
        self.retry_seconds = retry_seconds


class Unavailable(MillraceError):
    code = "unavailable"


class Corrupt(MillraceError):
    code = "corrupt"


class KeyGone(MillraceError):
    code = "key_gone"


# The general class is last: an error's kind is the first class that it is an instance of.
REFUSAL_KINDS: dict[str, type[Refused]] = {
    cls.kind: cls for cls in (Invalid, Missing, Clash, TooLarge, TooSlow, Unauthorised, Forbidden, Exceeded, Refused)
}
