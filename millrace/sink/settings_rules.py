"""A target's settings against its sink's schema: what is missing, unknown or of the wrong type is refused in words."""

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
    if said.get("format") == _SECRET_FORMAT and str(value).partition(":")[0] not in SECRET_SCHEMES:
        # The value is not repeated: it may be the secret.
        raise _wrong(target, f"has a {name} that is no reference", "Write env:NAME, file:NAME or k8s:NAME/KEY.")


def _is_a(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, object))


def _wrong(target: SinkTarget, what: str, remedy: str = "") -> Invalid:
    return Invalid(f"Sink {target.name!r} ({target.kind}) {what}.", remedy=remedy, code="bad_sink")
