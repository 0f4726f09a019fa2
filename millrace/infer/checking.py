"""A draft in, a draft that the judge agrees with out: the file is judged by it, and what fails is widened or left out.

What no declaration could mend, such as rows with too few cells, stays in the report."""

from dataclasses import dataclass, replace
from pathlib import Path

from millrace.formats.cut import UploadOptions
from millrace.infer.advice import Advice
from millrace.infer.draft import Draft
from millrace.infer.tally import ReasonCount
from millrace.infer.trial import Bounds, TrialRun, try_file
from millrace.model.columns import Column, column_of
from millrace.model.errors import Invalid

CHECKED_BYTES = 256 << 20
CHECK_SECONDS = 30.0
_ROUNDS = 6
_KEY_RULES = ("primary_key", "key_length")
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Checked:
    """`rows` were judged, `reasons` are left. `is_whole`: it was the whole file."""

    draft: Draft
    rows: int
    failed: int
    is_whole: bool
    reasons: tuple[ReasonCount, ...]


def checked(path: Path, draft: Draft, most_bytes: int = CHECKED_BYTES) -> Checked:
    bounds = Bounds(bytes=most_bytes, seconds=CHECK_SECONDS)
    # Most drafts pass at once: looking at every cell for what else would fit is left for those that do not.
    trial = _tried(path, draft, bounds, advising=False)
    for _ in range(_ROUNDS):
        if not trial.tally.failed:
            break
        trial = _tried(path, draft, bounds)
        mended = _mended(path, draft, trial)
        if mended == draft:
            break
        draft = mended
        refuse_empty(draft, path)
        trial = _tried(path, draft, bounds, advising=False)
    reasons = tuple(trial.tally.reasons)
    return Checked(draft, trial.tally.read, trial.tally.failed, trial.stopped_by is None, reasons)


def refuse_empty(draft: Draft, path: Path) -> None:
    if not draft.columns:
        why = "; ".join(f"{name!r} {reason}" for name, reason in list(draft.left_out.items())[:5])
        raise Invalid(f"{path.name} has no column that a table could have. {why}".strip(), remedy="Check the file.")


def _tried(path: Path, draft: Draft, bounds: Bounds, *, advising: bool = True) -> TrialRun:
    with path.open("rb") as file:
        pieces = iter(lambda: file.read(_READ_BYTES), b"")
        options = UploadOptions(file_name=path.name)
        return try_file(pieces, draft.definition(), options, bounds, advising=advising)


def _mended(path: Path, draft: Draft, trial: TrialRun) -> Draft:
    rules = {reason.rule for reason in trial.tally.reasons}
    if "undecodable" in rules:
        return _without_undecodable(path, draft)
    if rules & set(_KEY_RULES):
        return _without_key(draft, trial.tally.reasons)
    for name in [reason.column for reason in trial.tally.reasons if reason.rule == "unknown_field"]:
        draft = replace(draft, left_out={**draft.left_out, name or "": "does not occur in the rows looked at"})
    for advice in trial.advice():
        draft = _widened(draft, advice)
    return draft


def _without_key(draft: Draft, reasons: list[ReasonCount]) -> Draft:
    """What has no value in some row is no key, but may well be a column."""
    empty = {reason.column for reason in reasons if reason.rule == "primary_key"}
    columns = (replace(column, nullable=column.nullable or column.name in empty) for column in draft.columns)
    return replace(draft, columns=tuple(columns), key=())


def _widened(draft: Draft, advice: Advice) -> Draft:
    column = next(each for each in draft.columns if each.name == advice.column)
    avro = next(iter(advice.fits), None)
    if avro is None:
        return draft.without(column.name, "has values of kinds that no type unites")
    wider = column_of(column.name, "double" if avro == "float" else avro, column.nullable or advice.nullable)
    if (wider.avro, wider.nullable) != (column.avro, column.nullable):
        return draft.retyped(wider)
    return _last_resort(draft, column)


def _last_resort(draft: Draft, column: Column) -> Draft:
    """The judge refuses cells that the type should take: text takes more, and bytes take anything."""
    wider = {"string": "bytes", "bytes": None}
    avro = wider.get(column.kind if column.logical is None else "", "string")
    if avro is None or (draft.is_strict and avro == "string"):
        return draft.without(column.name, "has values that the judge does not take as any type")
    return draft.retyped(column_of(column.name, avro, column.nullable))


def _without_undecodable(path: Path, draft: Draft) -> Draft:
    """A chunk that cannot be read at all does not say why: each column is tried alone."""
    for column in draft.columns:
        alone = replace(draft, columns=(column,), key=(), left_out={"": "only one is tried"})
        trial = _tried(path, alone, Bounds(rows=1))
        if any(reason.rule == "undecodable" for reason in trial.tally.reasons):
            draft = draft.without(column.name, "cannot be decoded")
    return draft
