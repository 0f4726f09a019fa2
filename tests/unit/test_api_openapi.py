"""The OpenAPI document is one that generators of clients and validators can read."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import pytest
from fastapi.openapi.models import OpenAPI
from jsonschema import Draft202012Validator

from millrace.api.app import make_app

METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}
Operation = tuple[str, str, dict[str, Any]]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return make_app(cast(Any, None)).openapi()


@pytest.fixture(scope="module")
def operations(document: dict[str, Any]) -> list[Operation]:
    return [
        (path, method, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    ]


def test_its_shape_is_that_of_the_specification(document: dict[str, Any]) -> None:
    assert re.fullmatch(r"3\.1\.\d", document["openapi"])
    assert {"title", "version"} <= document["info"].keys()
    OpenAPI.model_validate(document)


def test_every_parameter_of_a_path_is_declared_and_no_other(operations: list[Operation]) -> None:
    for path, method, operation in operations:
        declared = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"]
        assert sorted(re.findall(r"{(\w+)(?::\w+)?}", path)) == sorted(declared), f"{method} {path}"
        assert all(each["required"] for each in operation.get("parameters", ()) if each["in"] == "path")


def test_names_are_unique(operations: list[Operation]) -> None:
    ids = Counter(operation["operationId"] for _, _, operation in operations)
    assert [name for name, times in ids.items() if times > 1] == []
    for path, method, operation in operations:
        names = Counter((each["name"], each["in"]) for each in operation.get("parameters", ()))
        assert [name for name, times in names.items() if times > 1] == [], f"{method} {path}"


def test_every_operation_has_an_answer_with_words(operations: list[Operation]) -> None:
    for path, method, operation in operations:
        assert operation["responses"], f"{method} {path}"
        for status, response in operation["responses"].items():
            assert re.fullmatch(r"[1-5](\d\d|XX)|default", status), f"{method} {path}"
            assert response["description"], f"{method} {path} {status}"


def schemas(node: Any) -> Iterator[dict[str, Any]]:
    """Every schema of the document, the outermost of each place."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == "schema":
                yield value
            elif name == "schemas":
                yield from value.values()
            else:
                yield from schemas(value)
    elif isinstance(node, list):
        for each in node:
            yield from schemas(each)


def test_every_schema_is_a_json_schema(document: dict[str, Any]) -> None:
    found = list(schemas(document))
    assert len(found) > 50
    for schema in found:
        Draft202012Validator.check_schema(schema)


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (value for name, value in node.items() if name == "$ref")
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for each in node:
            yield from references(each)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for reference in set(references(document)):
        node: Any = document
        for part in reference.removeprefix("#/").split("/"):
            assert part in node, reference
            node = node[part]
