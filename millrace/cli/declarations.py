"""Reads declarations from files and folders, in the order to apply them. A folder's agreement names its tables' tenant."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from millrace.model.errors import Invalid
from millrace.model.names import checked_name

SUFFIXES = (".json", ".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Declaration:
    """A tenant's agreement, or with `table` a table."""

    tenant: str
    table: str | None
    document: dict[str, Any]

    @property
    def name(self) -> str:
        return self.tenant if self.table is None else f"{self.tenant}/{self.table}"


def read_declarations(paths: list[Path], tenant: str | None = None) -> list[Declaration]:
    """Agreements before tables. A table's tenant: its own word, else `tenant`, else the agreement beside it."""
    folders: dict[Path, list[tuple[Path, dict[str, Any]]]] = {}
    for file, documents in _read(paths).items():
        folders.setdefault(file.parent, []).extend((file, document) for document in documents)
    agreements: list[Declaration] = []
    tables: list[Declaration] = []
    for together in folders.values():
        beside = [_agreement(document) for _, document in together if _is_agreement(document)]
        agreements += beside
        tables += [_table(file, document, tenant, beside) for file, document in together if not _is_agreement(document)]
    return agreements + tables


def _read(paths: list[Path]) -> dict[Path, list[dict[str, Any]]]:
    """The documents of each file. Files of a folder may hold none, but all of them together must hold some."""
    found: dict[Path, list[dict[str, Any]]] = {}
    for path in paths:
        files = list(_files(path))
        found |= {file: list(_documents(file)) for file in files if file not in found}
        if not any(found[file] for file in files):
            remedy = "Write the agreement of a tenant or a table there: `millrace schema agreement`, `millrace schema table`."
            raise Invalid(f"{path} holds no declaration.", remedy=remedy)
    return found


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
        if not found:
            raise Invalid(f"{path} holds no declaration.", remedy=f"Put {', '.join(SUFFIXES)} files there.")
        yield from found
    elif path.is_file():
        yield path
    else:
        raise typer.BadParameter(f"{path} is neither a file nor a folder.")


def _documents(file: Path) -> Iterator[dict[str, Any]]:
    # Help does not need it, and it takes long to import.
    import yaml  # noqa: PLC0415

    try:
        text = file.read_text(encoding="utf-8-sig")
        parsed = [json.loads(text)] if file.suffix.lower() == ".json" else list(yaml.safe_load_all(text))
    except OSError as failed:
        raise Invalid(f"{file} cannot be read: {failed.strerror}.") from None
    except (ValueError, yaml.YAMLError) as failed:
        raise Invalid(f"{file} cannot be read: {' '.join(str(failed).split())}.", remedy="Correct it.") from None
    except RecursionError:
        raise Invalid(f"{file} is nested too deeply.", remedy="Correct it.") from None
    for document in parsed:
        for each in document if isinstance(document, list) else [document]:
            if isinstance(each, dict):
                _refuse_unsendable(file, each)
                yield each
            elif each is not None:
                raise Invalid(f"{file} holds {each!r:.40} where a declaration should be.")


def _refuse_unsendable(file: Path, document: dict[str, Any]) -> None:
    """YAML knows more than JSON does: dates, loops, sets."""
    try:
        json.dumps(document, ensure_ascii=False, allow_nan=False, default=_refuse_value).encode()
    except RecursionError:
        raise Invalid(f"{file} is nested too deeply.", remedy="Correct it.") from None
    except (TypeError, ValueError) as failed:
        raise Invalid(
            f"{file} holds what JSON cannot say: {failed}.", remedy="Put dates and times in quotes."
        ) from None


def _refuse_value(value: object) -> None:
    raise TypeError(f"{value} is a {type(value).__name__}")


def _is_agreement(document: dict[str, Any]) -> bool:
    return "schema" not in document and bool({"client", "tenant"} & set(document))


def _agreement(document: dict[str, Any]) -> Declaration:
    rest = {name: value for name, value in document.items() if name not in ("tenant", "client")}
    tenant = document.get("client", document.get("tenant"))
    return Declaration(checked_name("tenant", tenant), None, {"client": tenant, **rest})


def _table(file: Path, document: dict[str, Any], tenant: str | None, beside: list[Declaration]) -> Declaration:
    schema = document.get("schema")
    if not isinstance(schema, dict):
        raise Invalid(
            f"{file} is neither an agreement nor a table.",
            remedy="An agreement has `client`, a table has `schema` with an Avro record.",
        )
    owner = (
        document.get("tenant") or tenant or (beside[0].tenant if len({each.tenant for each in beside}) == 1 else None)
    )
    if owner is None:
        raise Invalid(
            f"Nothing names the tenant of the table in {file}.",
            remedy="Put `tenant` into the document, one agreement beside it, or give --tenant.",
        )
    rest = {name: value for name, value in document.items() if name != "tenant"}
    name = checked_name("table", document.get("table") or schema.get("name"))
    return Declaration(checked_name("tenant", owner), name, rest)
