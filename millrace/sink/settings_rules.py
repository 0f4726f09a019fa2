"""A target's settings against its sink's schema: what is missing, unknown or of the wrong type is refused in words."""

import re
from typing import Any

from millrace.model.errors import Invalid
from millrace.model.sinks import SECRET_SCHEMES, SinkTarget

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}
_WORDS = {
    "string": "a text",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}
# Settings that hold a reference to a secret, never the secret itself.
_SECRET_FORMAT = "secret"
_SECRET_NAME = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*", re.ASCII)
# A name, or an address of IPv4 or IPv6: nothing that a driver could read as more than that.
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]{2,45}", re.ASCII)


def refuse_settings(target: SinkTarget, schema: dict[str, Any]) -> None:
    known: dict[str, Any] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in target.settings:
            raise _wrong(target, f"needs {name!r}: {known.get(name, {}).get('description', '')}".rstrip(": "))
    for name, value in target.settings.items():
        if name in known:
            _refuse_value(target, name, value, known[name])
        elif schema.get("additionalProperties", True) is False:
            raise _wrong(target, f"has no setting {name!r}", f"Known: {', '.join(known)}.")


def _refuse_value(target: SinkTarget, name: str, value: object, said: dict[str, Any]) -> None:
    kind = said.get("type")
    if isinstance(kind, str) and not _is_a(value, kind):
        raise _wrong(target, f"has {name} = {value!r:.60}", f"Give {_WORDS.get(kind, kind)}.")
    if "enum" in said and value not in said["enum"]:
        raise _wrong(target, f"has {name} = {value!r:.60}", f"Choose one of: {', '.join(map(str, said['enum']))}.")
    if isinstance(value, list) and "items" in said:
        for one in value:
            _refuse_value(target, name, one, said["items"])
    if said.get("format") == "hostname" and not _HOST.fullmatch(str(value)):
        raise _wrong(
            target, f"has {name} = {value!r:.60}", "Give a host's name or address alone, without port or path."
        )
    if said.get("format") == _SECRET_FORMAT and not _is_reference(str(value)):
        # The value is not repeated: it may be the secret.
        raise _wrong(target, f"has a {name} that is no reference", "Write env:NAME, file:NAME or k8s:NAME/KEY.")


def _is_reference(text: str) -> bool:
    """A scheme and a plain name: nothing that leads out of where secrets are."""
    scheme, _, name = text.partition(":")
    return scheme in SECRET_SCHEMES and bool(_SECRET_NAME.fullmatch(name)) and ".." not in name.split("/")


def _is_a(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, object))


def _wrong(target: SinkTarget, what: str, remedy: str = "") -> Invalid:
    return Invalid(f"Sink {target.name!r} ({target.kind}) {what}.", remedy=remedy, code="bad_sink")
