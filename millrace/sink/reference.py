"""Reference pages of the sinks, made from what each says of itself: `python -m millrace.sink.reference FOLDER`."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from millrace.model.sinks import Abilities
from millrace.sink.connector import Connector
from millrace.sink.registry import OURS, sink_class

NOTE = "<!-- Made by `make reference` from the sink's own schema; change that, not this page. -->"
SURVIVES = {"process": "a killed process", "power": "a power cut"}
_EXAMPLES = {"hostname": "server.example", "host-port": "server.example:9092", "uri": "https://server.example/path"}


def page(kind: str) -> str:
    sink = sink_class(kind)
    about = inspect.getdoc(inspect.getmodule(sink)) or ""
    parts = (
        f"# Sink: {kind}",
        NOTE,
        about,
        "\n".join(("```yaml", "sinks:", *_example(kind, sink.settings_schema), "```")),
        "## Settings",
        "\n".join(_settings(sink.settings_schema)),
        "Every sink also takes `name` (else its kind) and `required` (else true: imports wait for it).",
        "## What it can do",
        "\n".join(_abilities(sink)),
    )
    return "\n\n".join(parts) + "\n"


def _example(kind: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"  - kind: {kind}"
    for name in schema.get("required", ()):
        yield f"    {name}: {_sample(name, schema['properties'][name])}"


def _sample(name: str, said: dict[str, Any]) -> str:
    if said.get("type") == "array":
        return f"[{_sample(name, said.get('items', {}))}]"
    if said.get("examples"):
        return str(said["examples"][0])
    if said.get("format") == "secret":
        return f"env:MILLRACE_SECRET_{name.upper()}"
    return str(said["enum"][0]) if "enum" in said else _EXAMPLES.get(str(said.get("format")), "…")


def _settings(schema: dict[str, Any]) -> Iterator[str]:
    yield "| setting | value | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for name, said in schema["properties"].items():
        default = "**required**" if name in schema.get("required", ()) else _shown(said.get("default"))
        yield f"| `{name}` | {_value(said)} | {default} | {_cell(said.get('description', ''))} |"


def _value(said: dict[str, Any]) -> str:
    if "enum" in said:
        return ", ".join(f"`{one}`" for one in said["enum"])
    if said.get("format") == "secret":
        return "reference to a secret"
    kind = str(said.get("type", "any"))
    return f"list of {_value(said['items'])}" if kind == "array" and "items" in said else str(said.get("format", kind))


def _shown(default: Any) -> str:
    return "–" if default is None else f"`{default if isinstance(default, str) else orjson.dumps(default).decode()}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _abilities(sink: type[Connector]) -> Iterator[str]:
    able: Abilities = sink.abilities
    yield "| | |"
    yield "| --- | --- |"
    for what, can in (
        ("replaces rows by key: the last one wins", able.upsert),
        ("deletes rows", able.delete),
        ("shows an import as a whole (`publish: atomic`)", able.atomic_publish),
        ("keeps nested values", able.nested_types),
        ("takes tables without a primary key, each row once", able.exactly_once_append),
        ("keeps every text, also one with U+0000 in it", able.every_text),
    ):
        yield f"| {what} | {'yes' if can else 'no'} |"
    yield f"| what is durable there survives | {SURVIVES.get(able.survives, able.survives)} |"
    if hasattr(sink, "declared"):
        yield "| | settings may change this |"


def pages() -> dict[str, str]:
    return {kind: page(kind) for kind in OURS}


def main(folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    for kind, text in pages().items():
        (Path(folder) / f"{kind}.md").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1])
