"""Reference pages of the sinks, made from their settings models: `python -m millrace.sink.reference FOLDER`."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from millrace.sink.registry import OURS, settings_class
from millrace.sink.settings import ConnectorSettings, properties, required

NOTE = "<!-- Made by `make reference` from the sink's settings model; change that, not this page. -->"
SURVIVES = {"process": "a killed process", "power": "a power cut"}
_EXAMPLES = {"hostname": "server.example", "uri": "https://server.example/path"}


def page(kind: str) -> str:
    model = settings_class(kind)
    about = inspect.getdoc(inspect.getmodule(model)) or ""
    parts = (
        f"# Sink: {kind}",
        NOTE,
        about,
        "\n".join(("```yaml", "sinks:", *_example(kind, model), "```")),
        "## Settings",
        "\n".join(_settings(model)),
        "Every sink also takes `name` (else its kind) and `required` (else true: imports wait for it).",
        "## What it can do",
        "\n".join(_abilities(model)),
    )
    return "\n\n".join(parts) + "\n"


def _example(kind: str, model: type[ConnectorSettings]) -> Iterator[str]:
    yield f"  - kind: {kind}"
    for name in required(model):
        yield f"    {name}: {_sample(name, properties(model)[name])}"


def _sample(name: str, described: dict[str, Any]) -> str:
    if described.get("type") == "array":
        return f"[{_sample(name, described.get('items', {}))}]"
    if described.get("examples"):
        return str(described["examples"][0])
    if described.get("format") == "secret":
        return f"env:MILLRACE_SECRET_ACME_{name.upper()}"
    return str(described["enum"][0]) if "enum" in described else _EXAMPLES.get(str(described.get("format")), "…")


def _settings(model: type[ConnectorSettings]) -> Iterator[str]:
    yield "| setting | value | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for name, described in properties(model).items():
        default = "**required**" if name in required(model) else _shown(described.get("default"))
        yield f"| `{name}` | {_value(described)} | {default} | {_cell(described.get('description', ''))} |"


def _value(described: dict[str, Any]) -> str:
    if "enum" in described:
        return ", ".join(f"`{choice}`" for choice in described["enum"])
    if described.get("format") == "secret":
        return "reference to a secret"
    if described.get("type") == "array" and "items" in described:
        return f"list of {_value(described['items'])}"
    return str(described.get("format") or described.get("type", "any"))


def _shown(default: Any) -> str:
    if default in (None, "", []):
        return "–"
    return f"`{default if isinstance(default, str) else orjson.dumps(default).decode()}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _abilities(model: type[ConnectorSettings]) -> Iterator[str]:
    able = model.abilities
    yield "| | |"
    yield "| --- | --- |"
    for what, can in (
        ("replaces rows by key: the last one wins", able.upsert),
        ("deletes rows", able.delete),
        ("shows an import as a whole (`publish: atomic`)", able.atomic_publish),
        ("keeps nested values", able.nested_types),
        ("takes tables without a primary key, each row once", able.exactly_once_append),
        ("keeps every text, also one with U+0000 in it", able.every_text),
        ("is told when all of an import is there, and tells its readers", able.takes_ends),
    ):
        yield f"| {what} | {'yes' if can else 'no'} |"
    yield f"| what is durable there survives | {SURVIVES.get(able.survives, able.survives)} |"
    if model.abilities_for is not ConnectorSettings.abilities_for:
        yield "| | settings may change this |"


def pages() -> dict[str, str]:
    return {kind: page(kind) for kind in OURS}


def main(folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    for kind, text in pages().items():
        (Path(folder) / f"{kind}.md").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1])
