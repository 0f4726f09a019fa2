"""Changes of a table in, lines for people out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from millrace.model.budget import BUDGET_WORDS
from millrace.model.changes import AddColumn, Change, DropColumn, RenameColumn, WidenColumn
from millrace.model.columns import Column, parse_columns
from millrace.model.defaults import stored_default
from millrace.model.fields import field_of
from millrace.model.rules import rule_document
from millrace.model.table import TableDeclaration
from millrace.model.written import COLUMN_WORDS

_SHOWN = 60


def describe(changes: Sequence[Change]) -> list[str]:
    """One line per change, in the words of the declaration."""
    return [_described(change) for change in changes]


def settings_changed(before: TableDeclaration, after: TableDeclaration) -> list[str]:
    """One line per setting besides the columns and their types."""
    was, becomes = _settings(before), _settings(after)
    said_before, says = _said_of_columns(before), _said_of_columns(after)
    for column in (name for name in said_before if name in says):
        was |= {f"{what} of {column}": value for what, value in said_before[column].items()}
        becomes |= {f"{what} of {column}": value for what, value in says[column].items()}
    return words_changed(was, becomes)


def words_changed(was: Mapping[str, Any], becomes: Mapping[str, Any]) -> list[str]:
    """One line per field of a document whose value changes. For mappings, one line per inner field."""
    lines: list[str] = []
    for name in {**was, **becomes}:
        before, after = was.get(name), becomes.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += [f"{name}.{line}" for line in words_changed(before, after)]
        elif before != after:
            lines.append(f"{name}: {shown_value(before)} -> {shown_value(after)}")
    return lines


def _described(change: Change) -> str:
    match change:
        case AddColumn(column):
            return f"add column {column.name} {_typed(column)}{_default(column)}"
        case DropColumn(name):
            return f"drop column {name}"
        case RenameColumn(old, new):
            return f"rename column {old} to {new}"
        case WidenColumn(name, before, after):
            return f"change column {name} from {_typed(before)} to {_typed(after)}"


def _typed(column: Column) -> str:
    return field_of(column).spelled()


def _default(column: Column) -> str:
    return "" if stored_default(column) is None else f", default {shown_value(column.default)}"


def _settings(table: TableDeclaration) -> dict[str, Any]:
    """All settings but the columns. The parts of csv and budget have their names in the document."""
    values = table.to_dict()
    del values["schema"], values["name"]
    values.pop("rules", None)
    csv, budget, written = asdict(table.csv), values.pop("budget"), values.pop("written", {})
    targets = {f"sinks.{one['name']}": _target(one) for one in values.pop("targets")}
    del values["csv"], values["sinks"]
    named = dict(zip(BUDGET_WORDS, ("rows", "percent", "min_rows", "on_budget"), strict=True))
    return {
        **values,
        **targets,
        **{f"csv.{name}": value for name, value in csv.items()},
        **{name: budget.get(part) for name, part in named.items()},
        **{f"written.{word}": value for word, value in written.items()},
        **{f"rules.{rule.name}": rule_document(rule) for rule in table.rules},
    }


def _target(target: Mapping[str, Any]) -> dict[str, Any]:
    """As in the document."""
    return {"kind": target["kind"], **target["settings"], **({} if target["required"] else {"required": False})}


def _said_of_columns(table: TableDeclaration) -> dict[str, dict[str, Any]]:
    """The default and the aliases of each column, and how it is written."""
    columns = parse_columns(table.schema)
    return {
        column.name: {
            "default": column.default,
            "aliases": list(column.aliases),
            **({} if table.written is None else {word: words[word] for word in COLUMN_WORDS if word in words}),
        }
        for column, words in zip(columns, table.schema["fields"], strict=True)
    }


def shown_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
