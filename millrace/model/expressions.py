"""Expressions over a row's columns: text in, a tree of values out. The language is closed: it can do nothing else.

    helpful <= total and (note is null or length(note) < 200) and kind in ('a', 'b')

Columns are words, or any text between backticks. Texts stand in single quotes; a quote inside is doubled. A comparison with
null is unknown, and so is a division by zero."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millrace.model.errors import Invalid

MOST_LEVELS = 40
LARGEST_NUMBER = 1.7976931348623157e308
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
# Functions and the number of their arguments.
FUNCTIONS = {
    "length": 1, "lower": 1, "upper": 1, "trim": 1, "abs": 1, "coalesce": 2, "starts_with": 2, "ends_with": 2,
    "contains": 2, "matches": 2,
}  # fmt: skip
_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?|\.[0-9]+)|(?P<text>'(?:[^']|'')*')"
    r"|(?P<quoted>`[^`]+`)|(?P<word>[^\W\d]\w*)|(?P<sign>==|!=|<>|<=|>=|[-+*/=<>(),]))"
)
_SAME = {"==": "=", "<>": "!="}
_RESERVED = ("and", "or", "not", "is", "in", "null", "true", "false")


@dataclass(frozen=True, slots=True)
class ColumnName:
    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    value: int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or a function: `and`, `or`, `not`, `is_null`, `in`, `neg`, arithmetic, comparisons, FUNCTIONS."""

    what: str
    parts: tuple["Expression", ...]


Expression = ColumnName | Literal | Call


def parse_expression(text: str) -> Expression:
    """Refuses text that is no expression, and names the position of the error."""
    return _Parser(text).whole()


def columns_of(expression: Expression) -> Iterator[str]:
    match expression:
        case ColumnName(name):
            yield name
        case Call(_, parts):
            for part in parts:
                yield from columns_of(part)
        case _:
            return


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._tokenise())
        self._at = 0
        self._level = 0

    def _tokenise(self) -> Iterator[tuple[str, str, int]]:
        place, end = 0, len(self._text.rstrip())
        while place < end:
            found = _TOKEN.match(self._text, place)
            if found is None or found.lastgroup is None:
                raise self._wrong(place)
            token = found[found.lastgroup]
            word = found.lastgroup == "word" and token.lower() in _RESERVED
            yield (
                ("sign" if word else found.lastgroup),
                (token.lower() if word else token),
                found.start(found.lastgroup),
            )
            place = found.end()

    def whole(self) -> Expression:
        expression = self._or()
        if self._at < len(self._tokens):
            raise self._wrong(self._tokens[self._at][2])
        return expression

    def _peek(self, *signs: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at][:2] in [("sign", sign) for sign in signs]

    def _take(self, *signs: str) -> str | None:
        if not self._peek(*signs):
            return None
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _need(self, sign: str) -> None:
        if self._take(sign) is None:
            raise self._wrong()

    def _or(self) -> Expression:
        self._level += 1
        if self._level > MOST_LEVELS:
            raise Invalid(f"The expression {self._text!r:.60} is nested too deeply.", remedy="Write two rules.")
        found = self._joined("or", self._and)
        self._level -= 1
        return found

    def _and(self) -> Expression:
        return self._joined("and", self._not)

    def _joined(self, word: str, part: Callable[[], Expression]) -> Expression:
        parts = [part()]
        while self._take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Call(word, tuple(parts))

    def _not(self) -> Expression:
        negated = False
        while self._take("not"):
            negated = not negated
        found = self._comparison()
        return Call("not", (found,)) if negated else found

    def _comparison(self) -> Expression:
        left = self._sum()
        if sign := self._take("=", "==", "!=", "<>", "<", "<=", ">", ">="):
            return Call(_SAME.get(sign, sign), (left, self._sum()))
        if self._take("is"):
            negated = self._take("not") is not None
            self._need("null")
            return _maybe_not(negated, Call("is_null", (left,)))
        negated = self._take("not") is not None
        if self._take("in"):
            return _maybe_not(negated, Call("in", (left, *self._listed())))
        if negated:
            raise self._wrong()
        return left

    def _listed(self) -> tuple[Expression, ...]:
        self._need("(")
        values = [self._literal()]
        while self._take(","):
            values.append(self._literal())
        self._need(")")
        return tuple(values)

    def _literal(self) -> Expression:
        negative = self._take("-") is not None
        found = self._primary()
        if not isinstance(found, Literal) or (negative and not isinstance(found.value, int | float)):
            raise self._wrong()
        return Literal(-found.value) if negative and isinstance(found.value, int | float) else found

    def _sum(self) -> Expression:
        return self._chained(("+", "-"), lambda: self._chained(("*", "/"), self._factor))

    def _chained(self, signs: tuple[str, ...], part: Callable[[], Expression]) -> Expression:
        left = part()
        while sign := self._take(*signs):
            left = Call(sign, (left, part()))
        return left

    def _factor(self) -> Expression:
        negative = False
        while self._take("-"):
            negative = not negative
        found = self._primary()
        return Call("neg", (found,)) if negative else found

    def _primary(self) -> Expression:
        if self._take("("):
            inner = self._or()
            self._need(")")
            return inner
        if word := self._take("true", "false", "null"):
            return Literal({"true": True, "false": False, "null": None}[word])
        if self._at >= len(self._tokens) or self._tokens[self._at][0] == "sign":
            raise self._wrong()
        kind, token, _ = self._tokens[self._at]
        self._at += 1
        match kind:
            case "number":
                return Literal(self._number(token))
            case "text":
                return Literal(token[1:-1].replace("''", "'"))
            case "quoted":
                return ColumnName(token[1:-1])
        return self._called(token) if self._peek("(") else ColumnName(token)

    def _number(self, token: str) -> int | float:
        value = int(token) if token.isdigit() else float(token)
        if not abs(value) <= LARGEST_NUMBER:
            raise Invalid(f"The expression has the number {token!r:.40}.", remedy="Write a smaller one.")
        return value

    def _called(self, name: str) -> Expression:
        if name.lower() not in FUNCTIONS:
            raise Invalid(f"There is no function {name!r:.40}.", remedy=f"Known: {', '.join(FUNCTIONS)}.")
        self._need("(")
        parts = [self._or()]
        while self._take(","):
            parts.append(self._or())
        self._need(")")
        if len(parts) != FUNCTIONS[name.lower()]:
            raise Invalid(f"{name} takes {FUNCTIONS[name.lower()]} arguments, not {len(parts)}.")
        return Call(name.lower(), tuple(parts))

    def _wrong(self, place: int | None = None) -> Invalid:
        if place is None:
            place = self._tokens[self._at][2] if self._at < len(self._tokens) else len(self._text)
        before, after = self._text[max(0, place - 30) : place], self._text[place : place + 20]
        return Invalid(
            f"The expression cannot be read behind {before!r}, at {after!r}.",
            remedy="Compare columns and values: helpful <= total and kind in ('a', 'b').",
        )


def _maybe_not(negated: bool, call: Call) -> Call:
    return Call("not", (call,)) if negated else call
