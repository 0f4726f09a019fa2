"""The files under tests/files: each as people send it, and beside it what `infer` must propose and an import must count."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from millrace.infer.avro import shown_type

FILES = Path(__file__).parents[1] / "files"
_PLAIN_CSV = {"header": True, "delimiter": ",", "quote": '"', "null_text": "", "encoding": "utf-8"}


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """`expected` is the YAML next to the file. It leaves out what is usual."""

    path: Path
    expected: dict[str, Any]

    @property
    def table(self) -> str:
        return self.path.name.partition(".")[0]

    @property
    def counts(self) -> dict[str, int]:
        return {"repeated_headers": 0, **self.expected["counts"]}

    @property
    def declaration(self) -> dict[str, Any]:
        """What is expected, in the form of `summary`."""
        known = self.expected
        found = {name: known.get(name, usual) for name, usual in _USUAL.items()}
        if found["file_type"] == "csv":
            found["csv"] = {**_PLAIN_CSV, **known.get("csv", {})}
        return found


_USUAL: dict[str, Any] = {
    "file_type": "csv",
    "csv": None,
    "written": {},
    "columns": {},
    "other_columns": None,
    "primary_key": [],
    "unknown_fields": "reject",
}


def corpus() -> list[CorpusFile]:
    return [
        CorpusFile(path.with_suffix(""), yaml.safe_load(path.read_text(encoding="utf-8")))
        for path in sorted(FILES.glob("*.yaml"))
    ]


def summary(document: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """A declaration in the short form of the expectations: columns as `name: type`."""
    columns = {field["name"]: _shown(field) for field in document["schema"]["fields"]}
    named = {name: column for name, column in columns.items() if name in expected["columns"]}
    others = {
        column if isinstance(column, str) else str(column) for name, column in columns.items() if name not in named
    }
    alike = expected["other_columns"] is not None and len(others) == 1
    return {
        "file_type": document["file_type"],
        "csv": document.get("csv"),
        "written": document.get("written", {}),
        "columns": named if alike else columns,
        "other_columns": others.pop() if alike else None,
        "primary_key": document["primary_key"],
        "unknown_fields": document.get("unknown_fields", "reject"),
    }


def _shown(field: dict[str, Any]) -> str | dict[str, Any]:
    avro, attributes = field["type"], {name: field[name] for name in field if name not in ("name", "type")}
    nullable = isinstance(avro, list)
    kind = ("nullable " if nullable else "") + shown_type(avro[1] if nullable else avro)
    return {"type": kind, **attributes} if attributes else kind
