"""The page /docs: every endpoint with its role, parameters and body, from the OpenAPI document. It needs no script and
nothing from elsewhere, so it can be read without the internet."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from millrace.auth.access import access_table

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}
summary{cursor:pointer;padding:.2rem 0}summary code{font-weight:600}pre{background:#f4f5f7;padding:.6rem;overflow:auto}
table{border-collapse:collapse}td,th{text-align:left;padding:.1rem .8rem .1rem 0;vertical-align:top}small{color:#59636e}"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def docs_page(app: FastAPI) -> HTMLResponse:
    document = app.openapi()
    roles = {name: access.least or "nobody in particular" for name, access in access_table(app.routes).items()}
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            name = f"{method.upper()} {path}"
            shown = _operation(name, operation, roles.get(name, ""), document)
            by_tag.setdefault((operation.get("tags") or ["other"])[0], []).append(shown)
    parts = [f"<h2>{escape(tag)}</h2>{''.join(operations)}" for tag, operations in by_tag.items()]
    title = escape(document["info"]["title"])
    body = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title} API</title><style>{_STYLE}</style>'
        f'<h1>{title} API</h1><p>As a document for programs: <a href="openapi.json">openapi.json</a>.</p>{"".join(parts)}'
    )
    return HTMLResponse(body, headers={"Content-Security-Policy": _POLICY})


def _operation(name: str, operation: Mapping[str, Any], role: str, document: Mapping[str, Any]) -> str:
    said = f"<p>{escape(operation['description'])}</p>" if operation.get("description") else ""
    parameters = "".join(_parameters(operation.get("parameters", ())))
    bodies = operation.get("requestBody", {}).get("content", {})
    body = "".join(_body(kind, _resolved(media.get("schema", {}), document)) for kind, media in bodies.items())
    summary = f"<code>{escape(name)}</code> {escape(operation.get('summary', ''))} <small>{escape(role)}</small>"
    return f"<details><summary>{summary}</summary>{said}{parameters}{body}</details>"


def _body(kind: str, schema: Mapping[str, Any]) -> str:
    return f"<p>Body, <code>{escape(kind)}</code>:</p><pre>{escape(json.dumps(schema, indent=2))}</pre>"


def _parameters(given: list[Mapping[str, Any]]) -> Iterator[str]:
    if given:
        yield "<table><tr><th>parameter<th>in<th>type<th></tr>"
        for one in given:
            schema = one.get("schema", {})
            kind = schema.get("type") or " or ".join(str(each.get("type")) for each in schema.get("anyOf", ()))
            default = f"default {json.dumps(schema['default'])}" if schema.get("default") is not None else ""
            note = "required" if one.get("required") else default
            cells = (one["name"], one["in"], kind, note)
            yield "<tr>" + "".join(f"<td>{escape(str(cell))}" for cell in cells) + "</tr>"
        yield "</table>"


def _resolved(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema itself where the document only refers to it."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    found: Mapping[str, Any] = document.get("components", {}).get("schemas", {}).get(name, schema)
    return found
