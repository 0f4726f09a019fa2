"""The `infer` command: a file in, a declaration for `millrace apply` out; what it is drawn from on standard error."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from millrace.cli.printing import print_json, printable
from millrace.cli.session import Session
from millrace.cli.yaml_text import to_yaml
from millrace.infer.proposing import Proposal, propose

_FORMATS = (".yaml", ".yml", ".json")


def run(session: Session, path: Path, name: str | None, out: Path | None) -> None:
    if not path.is_file():
        raise typer.BadParameter(f"{path} is not a file.")
    if out is not None and out.suffix.lower() not in _FORMATS:
        raise typer.BadParameter(f"{out} should end in {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}.")
    proposal = propose(path, name)
    if out is not None:
        out.write_text(_written(proposal, path, as_json=out.suffix.lower() == ".json"), encoding="utf-8")
    if session.json:
        print_json(_document(proposal, path))
        return
    if out is None:
        print(_written(proposal, path, as_json=False), end="")
    for remark in _remarks(proposal):
        print(printable(remark), file=sys.stderr)
    if out is not None:
        print(f"Written to {out}; declare it with `millrace apply -f {out} --tenant TENANT`.", file=sys.stderr)


def _written(proposal: Proposal, path: Path, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(proposal.document, indent=2) + "\n"
    comments = [f"# Proposed from {path.name!r}.", *(f"# {remark}" for remark in _remarks(proposal))]
    return "\n".join(map(printable, comments)) + "\n" + to_yaml(proposal.document, compact=True)


def _remarks(proposal: Proposal) -> Iterator[str]:
    checked = proposal.checked
    packed = f" ({proposal.compression})" if proposal.compression else ""
    whole = "all" if checked.is_whole else "the first"
    yield (
        f"Looked at {proposal.looked_at:,} rows{packed}; the judge took "
        f"{checked.rows - checked.failed:,} of {whole} {checked.rows:,} rows."
    )
    for reason in checked.reasons:
        told = f": {reason.examples[0].message}" if reason.examples else ""
        yield f"{reason.rows:,} rows would be rejected whatever is declared [{reason.rule}]{told}."
    for name, why in checked.draft.left_out.items():
        yield f"Column {name!r} is left out: it {why}."
    if not proposal.document["primary_key"]:
        yield "No primary key was found: rows would be appended, and a row sent again would be there twice."


def _document(proposal: Proposal, path: Path) -> dict[str, object]:
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
