"""The command infer: a file in, a declaration for `millrace apply` out; what it is based on goes to standard error."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.printing import print_json, printable
from millrace.cli.session import CommandSession

if TYPE_CHECKING:
    from millrace.infer.proposing import Proposal

_FORMATS = (".yaml", ".yml", ".json")
app = typer.Typer()


@app.command("infer")
def infer(
    session: CommandSession,
    file: Annotated[Path, typer.Argument(help="CSV, JSON Lines, Avro or Parquet.")],
    name: Annotated[str | None, typer.Option(help="The table's name. Default: the file's.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the declaration to a .yaml or .json file.")] = None,
) -> None:
    """Propose a table's declaration from a file.

    File type, dialect, column types, what may be null and the likely primary key; needs no platform."""
    # What judges takes long to import.
    from millrace.infer.proposing import propose  # noqa: PLC0415

    if not file.is_file():
        raise typer.BadParameter(f"{file} is not a file.")
    if out is not None and out.suffix.lower() not in _FORMATS:
        raise typer.BadParameter(f"{out} should end in {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}.")
    proposal = propose(file, name)
    if out is not None:
        out.write_text(_written(proposal, file, as_json=out.suffix.lower() == ".json"), encoding="utf-8")
    if session.json:
        return print_json(_document(proposal, file))
    if out is None:
        print(_written(proposal, file, as_json=False), end="")
    for remark in _remarks(proposal):
        print(printable(remark), file=sys.stderr)
    if out is not None:
        print(f"Written to {out}; declare it with `millrace apply -f {out} --tenant TENANT`.", file=sys.stderr)


def _written(proposal: "Proposal", path: Path, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(proposal.document, indent=2) + "\n"
    from millrace.cli.yaml_text import to_yaml  # noqa: PLC0415

    comments = [f"# Proposed from {path.name!r}.", *(f"# {remark}" for remark in _remarks(proposal))]
    return "\n".join(map(printable, comments)) + "\n" + to_yaml(proposal.document, compact=True)


def _remarks(proposal: "Proposal") -> Iterator[str]:
    checked = proposal.checked
    packed = f" ({proposal.compression})" if proposal.compression else ""
    whole = "all" if checked.is_whole else "the first"
    yield (
        f"Looked at {proposal.looked_at:,} rows{packed}; the judge took "
        f"{checked.rows - checked.failed:,} of {whole} {checked.rows:,} rows."
    )
    for reason in checked.reasons:
        example = f": {reason.examples[0].message}" if reason.examples else ""
        yield f"{reason.rows:,} rows would be rejected whatever is declared [{reason.rule}]{example}."
    for name, why in checked.draft.left_out.items():
        yield f"Column {name!r} is left out: it {why}."
    if not proposal.document["primary_key"]:
        yield "No primary key was found: rows would be appended, and a row sent again would be there twice."


def _document(proposal: "Proposal", path: Path) -> dict[str, object]:
    checked = proposal.checked
    return {
        "file": path.name,
        "declaration": proposal.document,
        "compression": proposal.compression,
        "looked_at_rows": proposal.looked_at,
        "judged": {"rows": checked.rows, "rejected": checked.failed, "whole_file": checked.is_whole},
        "reasons": [{"rule": each.rule, "column": each.column, "rows": each.rows} for each in checked.reasons],
        "left_out": checked.draft.left_out,
    }
