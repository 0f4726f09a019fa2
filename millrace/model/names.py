"""The rule for names, and identifiers that follow it."""

import re
import secrets
import time

from millrace.model.errors import Invalid

MAX_NAME = 63
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}", re.ASCII)
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_IMPORT_ID = re.compile(r"imp_[0-9a-hjkmnp-tv-z]{26}", re.ASCII)


def checked_name(kind: str, value: object) -> str:
    """The value itself if it may become part of a path, a topic key or a view name."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    shown = repr(value if not isinstance(value, str) or len(value) <= 40 else value[:40] + "…")
    raise Invalid(
        f"{shown} is not {'an' if kind[0] in 'aeiou' else 'a'} {kind} name.",
        remedy=f"Use 1 to {MAX_NAME} ASCII letters, digits, '_' or '-', starting with a letter.",
        code="bad_name",
    )


def new_id(prefix: str) -> str:
    """A time-ordered identifier: 48 bits of milliseconds, 80 random bits."""
    number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    return prefix + "_" + "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


def is_import_id(value: str) -> bool:
    return _IMPORT_ID.fullmatch(value) is not None


def import_id_of(op_id: str) -> str:
    """The id of the import that an op makes, whoever named the op."""
    return "imp_" + op_id.partition("_")[2]


MOST_SPAN_LEVELS = 8
_SPAN_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


def checked_span(value: object) -> str:
    """A span's name: levels joined by '/'."""
    parts = value.split("/") if isinstance(value, str) and len(value) <= 512 else []
    if 1 <= len(parts) <= MOST_SPAN_LEVELS and all(_SPAN_PART.fullmatch(part) for part in parts):
        return "/".join(parts)
    raise Invalid(
        f"{value!r:.60} is not a span name.",
        remedy=f"Use 1 to {MOST_SPAN_LEVELS} levels joined by '/', each of ASCII letters, digits, '.', '_' or '-'.",
        code="bad_name",
    )


def span_lineage(name: str) -> list[str]:
    """The span's name and those of the levels above it, the topmost first."""
    parts = name.split("/")
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]


def chunk_id(import_id: str, number: int) -> str:
    return f"{import_id}/{number}"
