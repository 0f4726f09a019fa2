"""What is wrong with a setting, for who set it: its variable, an example, and its value unless that may be a secret."""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from millrace.model.errors import Invalid

PREFIX = "MILLRACE_"
# A number, perhaps with a unit, or a word.
_PLAIN_VALUE = re.compile(r"[-+]?[0-9][0-9.,_]{0,20} ?[A-Za-z%]{0,3}|[A-Za-z]{1,12}", re.ASCII)
_NETWORKS = '["10.0.0.0/8"]'
_EXAMPLES = {
    "PRIVATE_TARGETS": _NETWORKS,
    "TRUSTED_PROXIES": _NETWORKS,
    "EGRESS": _NETWORKS,
    "SHARED": '{"env:MILLRACE_SECRET_WAREHOUSE": ["acme"]}',
    "OPTIONS": '{"name": "value"}',
    "SHOWN": '["/opt/tools"]',
    "IMAGE_PULL_SECRETS": '["name"]',
    "URL": "jdbc:mysql://{host}:{port}/",
}


def variables(model: type[BaseModel], prefix: str = PREFIX) -> Iterable[tuple[str, FieldInfo]]:
    """Each variable that the settings read, with its field; those of a section come behind the section's own."""
    for name, field in model.model_fields.items():
        variable = f"{prefix}{name.upper()}"
        yield variable, field
        section = _section(field)
        if section is not None:
            yield from variables(section, f"{variable}__")


def wrong_settings(model: type[BaseModel], error: ValidationError) -> Invalid:
    # A value that may be of several kinds has an error for each: the first one is enough.
    found: dict[str, tuple[str, str]] = {}
    for one in error.errors():
        message = one["msg"].removeprefix("Value error, ")
        name, text, example = _wrong(model, one["loc"], message, one.get("input"))
        found.setdefault(name, (text, example))
    return _refusal(found.values())


def unparsed_settings(model: type[BaseModel], environ: Mapping[str, str]) -> Invalid:
    """A list, a mapping or a section is written as JSON."""
    set_here = {name.upper(): value for name, value in environ.items()}
    known = ((name, field) for name, field in variables(model) if _is_json(field) and set_here.get(name))
    wrong = [(name, field) for name, field in known if not _is_parsed(set_here[name])]
    return _refusal([(f"{name} is not JSON.", _example(name, field)) for name, field in wrong])


def _refusal(found: Collection[tuple[str, str]]) -> Invalid:
    examples = [example for _, example in found if example]
    remedy = f"For example: {examples[0]}" if examples else "Correct the variable, or the option of the command."
    message = " ".join(text for text, _ in found) or "A setting cannot be read."
    return Invalid(message, remedy=remedy, code="bad_setting")


def _wrong(model: type[BaseModel], place: tuple[int | str, ...], message: str, value: object) -> tuple[str, str, str]:
    """The variable at that place, what is wrong with it, and an example."""
    names: list[str] = []
    field, below = None, model
    for part in place:
        names.append(str(part).upper())
        field = below.model_fields.get(str(part))
        section = None if field is None else _section(field)
        if section is None:
            break
        below = section
    name = f"{PREFIX}{'__'.join(names)}"
    if field is None:
        return name, f"{name} is no setting.{_meant(model, name)}", ""
    if _section(field) is None:
        shown = f" is {value}" if _is_shown(field, value) else ""
        return name, f"{name}{shown}: {message.removesuffix('.')}.", _example(name, field)
    return name, f"{name}: {_with_variables(message, name, below)}.", ""


def _with_variables(message: str, name: str, section: type[BaseModel]) -> str:
    """What is wrong with a section as a whole names its fields."""
    fields = [field for field in section.model_fields if "_" in field]
    named = re.compile(rf"\b({'|'.join(sorted(fields, key=len, reverse=True))})\b") if fields else None
    return named.sub(lambda found: f"{name}__{found[1].upper()}", message) if named else message


def _meant(model: type[BaseModel], name: str) -> str:
    near = nearest(name, (known for known, _ in variables(model)))
    return f" Is {near} meant?" if near else ""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The variable that may be meant. The prefix, which all have, does not count."""
    found = get_close_matches(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in known], 1)
    return f"{PREFIX}{found[0]}" if found else None


def _is_shown(field: FieldInfo, value: object) -> bool:
    """Only of settings that are numbers or choices, and only what looks like one: somebody may have put a secret there."""
    kinds = {kind for kind in (field.annotation, *get_args(field.annotation)) if kind is not type(None)}
    is_plain = any(kind in (int, float, bool) or isinstance(kind, str) or get_origin(kind) is Literal for kind in kinds)
    return is_plain and isinstance(value, str | int | float) and _PLAIN_VALUE.fullmatch(str(value)) is not None


def _example(name: str, field: FieldInfo) -> str:
    plain = str(field.default).lower() if isinstance(field.default, bool) else field.default
    shown = _EXAMPLES.get(name.rpartition("__")[2]) or (plain if isinstance(plain, int | float | str) else None)
    return "" if shown is None else f"{name}={shown}"


def _section(field: FieldInfo) -> type[BaseModel] | None:
    if get_origin(field.annotation) in (dict, tuple):
        return None
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _is_json(field: FieldInfo) -> bool:
    return _section(field) is not None or get_origin(field.annotation) in (tuple, dict)


def _is_parsed(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
