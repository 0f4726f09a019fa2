"""A draft in, a draft by which the file passes the judge out: columns that fail are widened or left out.

Faults that no declaration could prevent, such as rows with too few cells, stay in the report."""

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
class CheckedDraft:
    """`rows`: how many were judged. `reasons`: the remaining faults. `is_whole`: the whole file was judged."""

    draft: Draft
    rows: int
    failed: int
    is_whole: bool
    reasons: tuple[ReasonCount, ...]


def checked(path: Path, draft: Draft, most_bytes: int = CHECKED_BYTES) -> CheckedDraft:
    bounds = Bounds(bytes=most_bytes, seconds=CHECK_SECONDS)
    # Most drafts pass at once. The expensive search for fitting types runs only for the others.
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
    return CheckedDraft(draft, trial.tally.read, trial.tally.failed, trial.stopped_by is None, reasons)


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
    """Drops the key. Its columns stay, nullable where a row has no value."""
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
    """For cells that the judge refuses although the type should take them: string takes more, and bytes take anything."""
    wider = {"string": "bytes", "bytes": None}
    avro = wider.get(column.kind if column.logical is None else "", "string")
    if avro is None or (draft.is_strict and avro == "string"):
        return draft.without(column.name, "has values that the judge does not take as any type")
    return draft.retyped(column_of(column.name, avro, column.nullable))


def _without_undecodable(path: Path, draft: Draft) -> Draft:
    """Tries each column alone: a chunk that cannot be read does not tell which column is the cause."""
    for column in draft.columns:
        alone = replace(draft, columns=(column,), key=(), left_out={"": "only one is tried"})
        trial = _tried(path, alone, Bounds(rows=1))
        if any(reason.rule == "undecodable" for reason in trial.tally.reasons):
            draft = draft.without(column.name, "cannot be decoded")
    return draft
