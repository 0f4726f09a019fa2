"""The command infer: a file in, a declaration for `millrace apply` out; what it is based on goes to standard error."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.printing import print_json, printable
from millrace.cli.session import CommandSession

if TYPE_CHECKING:
    from millrace.infer.proposing import Proposal
    from millrace.infer.tally import Example, ReasonCount

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
    if checked.repeated_headers:
        lines = "1 line repeats" if checked.repeated_headers == 1 else f"{checked.repeated_headers:,} lines repeat"
        yield f"{lines} the header. They are skipped (csv.repeated_header)."
    yield from checked.draft.remarks
    for reason in checked.reasons:
        yield _exception(reason)
    for name, why in checked.draft.left_out.items():
        yield f"Column {name!r} is left out: it {why}."
    if not proposal.document["primary_key"]:
        yield "No primary key was found: rows would be appended, and a row sent again would be there twice."


def _exception(reason: "ReasonCount") -> str:
    """Rows that would be rejected, with the places of the first."""
    rows = f"{reason.rows:,} {'row' if reason.rows == 1 else 'rows'} would be rejected"
    shown = [_example(each) for each in reason.examples]
    more = "; …" if reason.rows > len(shown) else ""
    if reason.column is None:
        return f"{rows} whatever is declared [{reason.rule}]: {'; '.join(shown)}{more}."
    return f"Column {reason.column!r}: {rows} [{reason.rule}]: {'; '.join(shown)}{more}."


def _example(example: "Example") -> str:
    place = f"line {example.line:,}" if example.line else f"row {example.row:,}"
    said = example.message if example.value is None else repr(example.value)
    return f"{place}: {said}"


def _document(proposal: "Proposal", path: Path) -> dict[str, object]:
    checked = proposal.checked
    return {
        "file": path.name,
        "declaration": proposal.document,
        "compression": proposal.compression,
        "looked_at_rows": proposal.looked_at,
        "judged": {"rows": checked.rows, "rejected": checked.failed, "whole_file": checked.is_whole},
        "repeated_headers": checked.repeated_headers,
        "reasons": [asdict(each) for each in checked.reasons],
        "remarks": list(checked.draft.remarks),
        "left_out": checked.draft.left_out,
    }
