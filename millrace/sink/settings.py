"""What a connector declares: a pydantic model of a target's settings, with its abilities and where its class is.

The model stands in a module that imports no driver, so that any process can ask what a kind of sink can do. It validates
settings in words, fills defaults, and is the source of the reference page and of the JSON Schema."""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from millrace.model.errors import Invalid
from millrace.model.secret_references import REMEDY as REFERENCE
from millrace.model.secret_references import parse_reference
from millrace.model.sinks import Abilities, SinkTarget
from millrace.model.table import TableDeclaration
from millrace.sink.context import SinkContext

# A name, or an address of IPv4 or IPv6: nothing that a driver could read as more than that.
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]{2,45}", re.ASCII)
# URIs of other schemes name a bucket or a path, not a host.
_WITH_HOST = ("http", "https", "hdfs", "webhdfs", "swebhdfs")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_REMEDIES = {
    "string_type": "Give a text.",
    "int_type": "Give a whole number.",
    "bool_type": "Give true or false.",
    "list_type": "Give a list.",
    "dict_type": "Give a mapping.",
    "too_short": "Give at least one.",
}
MOST_PROBLEMS = 5


def _host(value: str) -> str:
    if not _HOST.fullmatch(value):
        raise PydanticCustomError("hostname", "Give a host's name or address alone, without port or path.")
    return value


def _uri(value: str) -> str:
    try:
        urlsplit(value).port  # noqa: B018
    except ValueError:
        raise PydanticCustomError("uri", "Write SCHEME://HOST:PORT/PATH, and an IPv6 address in brackets.") from None
    return value


def _reference(value: str) -> str:
    try:
        return parse_reference(value).text
    except Invalid:
        raise PydanticCustomError("secret_reference", REFERENCE) from None


Host = Annotated[str, AfterValidator(_host), Field(json_schema_extra={"format": "hostname"})]
Uri = Annotated[str, AfterValidator(_uri), Field(json_schema_extra={"format": "uri"})]
SecretReference = Annotated[str, AfterValidator(_reference), Field(json_schema_extra={"format": "secret"})]
PASSWORD = "A reference to the secret: env:…, file:…, k8s:… or vault:…."


class ConnectorSettings(BaseModel):
    """One subclass per connector. A setting that names a host is a `Host` or a `Uri`, so that it is judged."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: ClassVar[str]
    abilities: ClassVar[Abilities]
    connector: ClassVar[str]
    """Where the connector's class is: "package.module:Class". Its constructor takes these settings and a `SinkContext`."""
    extra: ClassVar[str | None] = None
    """The extra of the platform that brings the driver, if the platform itself does not."""

    @field_validator("*", mode="before")
    @classmethod
    def _given(cls, value: object) -> object:
        """A setting without a value, such as `password:` in YAML, was forgotten rather than left out on purpose."""
        if value is None:
            raise PydanticCustomError("null", "Give a value, or leave the setting out.")
        return value

    def abilities_for(self, table: TableDeclaration, name: str, context: SinkContext) -> Abilities:
        """What the target `name` can do as it is set up; raises Invalid for settings that do not fit the table."""
        return self.abilities

    def refuse_tenant(self, tenant: str) -> None:
        """Raises Invalid for a tenant whose name means something else there."""

    @classmethod
    def of(cls, target: SinkTarget) -> Self:
        try:
            return cls.model_validate(target.settings)
        except ValidationError as error:
            problems = [_problem(cls, one) for one in error.errors(include_url=False)[:MOST_PROBLEMS]]
        what = "; it ".join(what for what, _ in problems)
        remedy = " ".join(dict.fromkeys(remedy for _, remedy in problems if remedy))
        raise Invalid(f"Sink {target.name!r} ({target.kind}) {what}.", remedy=remedy, code="bad_sink")

    def refuse_without(self, secrets: Iterable[str], what: str) -> None:
        for name in secrets:
            if getattr(self, name) is None:
                raise Invalid(
                    f"{what} needs {name}.",
                    remedy="Give a reference to a secret of yours: env:…, file:…, k8s:… or vault:….",
                    code="no_credentials",
                )

    def places(self) -> list[tuple[str, int | None]]:
        """Every host that the settings name, with its port where that is known."""
        port = getattr(self, "port", None)
        return [place for form, value in self._addresses() if (place := _place(form, value, port)) is not None]

    def references(self) -> list[str]:
        """Every reference to a secret among the settings."""
        return [value for form, value in self._addresses() if form == "secret"]

    def _addresses(self) -> Iterator[tuple[str, str]]:
        for name, described in properties(type(self)).items():
            form = described.get("format") or described.get("items", {}).get("format")
            given: Any = getattr(self, name)
            for value in given if isinstance(given, list) else [given]:
                if form is not None and value is not None:
                    yield form, value


def is_plain(parts: SplitResult) -> bool:
    """Whether a bucket or a host and a path is all there is."""
    is_ambiguous = parts.query or parts.fragment or "@" in parts.netloc or ".." in parts.path.split("/")
    return bool(parts.netloc) and not is_ambiguous


@cache
def properties(model: type[ConnectorSettings]) -> dict[str, dict[str, Any]]:
    """The JSON Schema of each setting; one that may be left out is described as it is when given."""
    return {name: _plain(schema) for name, schema in model.model_json_schema()["properties"].items()}


def required(model: type[ConnectorSettings]) -> list[str]:
    return [name for name, field in model.model_fields.items() if field.is_required()]


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = next((one for one in schema.get("anyOf", ()) if one.get("type") != "null"), {})
    return {
        name: value
        for name, value in {**schema, **given}.items()
        if name not in ("anyOf", "title") and not (name == "default" and value is None)
    }


def _problem(model: type[ConnectorSettings], error: ErrorDetails) -> tuple[str, str]:
    """What is wrong with one setting, and what to do about it."""
    name = str(error["loc"][0]) if error["loc"] else ""
    known = model.model_fields
    match error["type"]:
        case "missing":
            described_as = known[name].description
            return f"needs {name!r}", f"{name}: {described_as}" if described_as else ""
        case "extra_forbidden":
            near = get_close_matches(name, known, 1)
            meant = f"Did you mean {near[0]!r}? " if near else ""
            return f"has no setting {name!r:.60}", f"{meant}Known: {', '.join(known)}."
    described = properties(model).get(name, {})
    if described.get("format") == "secret":
        # The value is not repeated: it may be the secret.
        return f"has a value of {name!r} that is no reference", REFERENCE
    if error["type"] == "literal_error" and "enum" in described:
        return f"has {name} = {error['input']!r:.60}", f"Choose one of: {', '.join(map(str, described['enum']))}."
    return f"has {name} = {error['input']!r:.60}", _REMEDIES.get(error["type"], error["msg"])


def _place(form: str, value: str, port: int | None) -> tuple[str, int | None] | None:
    if form == "hostname":
        return value, port
    if form == "uri":
        parts = urlsplit(value)
        if parts.scheme in _WITH_HOST and parts.hostname:
            return parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)
    return None
