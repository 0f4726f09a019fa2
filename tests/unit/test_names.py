"""One name, one thing: a class name is defined once in the package, unless it is the same concept on two sides."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "millrace"

# The SDK's document and the platform's value of the same thing; the Protocol of a class and the class.
SAME_CONCEPT = {"DeclarationWarning", "ErrorPage", "QueryResult", "Reason"}


def class_names() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(str(path.relative_to(PACKAGE)))
    return found


def test_a_class_name_is_defined_once() -> None:
    twice = {
        name: sorted(where) for name, where in class_names().items() if len(where) > 1 and name not in SAME_CONCEPT
    }
    assert not twice, "rename one of each, or say here that they are the same concept"
