"""The span that the files of a run join, and the next one where it is over before they all have.

An import that fails aborts its span; what comes behind it must not go lost with it."""

from millrace.client import Problem
from millrace.client.spans import SpanClient

MOST_SPANS = 1000


class Route:
    """`is_new`: nothing of it has been begun before."""

    def __init__(self, spans: SpanClient, tenant: str, name: str, is_new: bool) -> None:
        self._spans = spans
        self._tenant = tenant
        self._name = name
        self._is_new = is_new
        self._number = 1
        self.begun: list[str] = []

    @property
    def span(self) -> str:
        return self._numbered(self._number)

    def _numbered(self, number: int) -> str:
        return self._name if number == 1 else f"{self._name}-{number}"

    def begin(self) -> None:
        while True:
            try:
                self._spans.begin(self._tenant, self.span)
                self.begun.append(self.span)
                return
            except Problem as refused:
                if refused.code != "span_over" or self._number >= MOST_SPANS:
                    raise
                self._number += 1

    def goes_on_after(self, refused: Problem) -> bool:
        """Whether the import that was refused may be asked for again, in the span that there is now."""
        if refused.code not in ("no_span", "span_over") or self._number >= MOST_SPANS:
            return False
        self.begin()
        return True

    def end(self) -> None:
        """Those that were aborted meanwhile stay so. Which ones were begun before a crash shows only by asking for them."""
        number = 1
        while number <= self._number or (not self._is_new and number <= MOST_SPANS):
            try:
                self._spans.end(self._tenant, self._numbered(number))
            except Problem as refused:
                if refused.may_pass:
                    raise
                if refused.code == "no_span" and number >= self._number:
                    return
            number += 1
