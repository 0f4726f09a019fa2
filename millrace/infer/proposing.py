"""`millrace infer`: a file in, a complete declaration out, checked by judging the same file. Needs no platform."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from millrace.formats.cut import UploadOptions
from millrace.infer.advising import Advice
from millrace.infer.draft import Draft, Drafted, table_name
from millrace.infer.json_file import SPACES
from millrace.infer.plain_draft import plainly_named
from millrace.infer.sampling import FileSample, as_utf8, compression_of, encoding_of, plain_bytes, sample_of
from millrace.infer.tally import ReasonCount
from millrace.infer.trial import Bounds, TrialRun, try_file
from millrace.model.columns import Column, column_of
from millrace.model.errors import Invalid
from millrace.model.formats import CSV, Format, every_format, format_of_suffix, load
from millrace.model.names import checked_name
from millrace.model.written import AS_USUAL

_START_BYTES = 64 << 10
CHECKED_BYTES = 256 << 20
CHECK_SECONDS = 30.0
_ROUNDS = 6
_KEY_RULES = ("primary_key", "key_length")
_READ_BYTES = 1 << 20
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class CheckedDraft:
    """`rows`: how many were judged. `reasons`: the remaining faults. `is_whole`: the whole file was judged."""

    draft: Draft
    rows: int
    failed: int
    is_whole: bool
    reasons: tuple[ReasonCount, ...]
    repeated_headers: int = 0


@dataclass(frozen=True, slots=True)
class Proposal:
    """`looked_at`: the number of rows the types are based on. `checked`: the judge's result for the file."""

    document: dict[str, Any]
    compression: str | None
    looked_at: int
    checked: CheckedDraft


def propose(path: Path, name: str | None = None) -> Proposal:
    """Refuses a file without rows or columns, and a JSON document that is not JSON Lines."""
    table = checked_name("table", name) if name else table_name(path.name.partition(".")[0])
    looked = _looked_at(path, table)
    _refuse_empty(looked.draft, path)
    result = _checked(path, looked.draft)
    return Proposal(result.draft.document(), compression_of(path), looked.rows, result)


def _looked_at(path: Path, table: str) -> Drafted:
    start = _start(path)
    found = next((each for each in every_format() if each.magic and start.startswith(each.magic)), None)
    if found is None:
        text = as_utf8(FileSample(start), encoding_of(FileSample(start))).head.lstrip(SPACES)
        if not text:
            raise Invalid(f"{path.name} is empty.", remedy="Give a file with rows.")
        found = _text_format(path, text)
    looked: Drafted = load(found.drafter)(sample_of(path) if found.is_text else path, table)
    return replace(looked, draft=plainly_named(looked.draft))


def _text_format(path: Path, text: bytes) -> Format:
    for each in every_format():
        if each.recogniser and load(each.recogniser)(path.name, text):
            return each
    named = next(filter(None, map(format_of_suffix, reversed(path.suffixes))), None)
    return CSV if named is None or named.magic or named.recogniser else named


def _start(path: Path) -> bytes:
    held = b""
    for piece in plain_bytes(path):
        held += piece
        if len(held) >= _START_BYTES:
            break
    return held[:_START_BYTES]


def _checked(path: Path, draft: Draft) -> CheckedDraft:
    """A draft by which nearly all rows pass the judge: columns in which more than a few cells fail are widened or left out.
    Faults that no declaration could prevent, such as rows with too few cells, stay in the report, as do single bad cells."""
    bounds = Bounds(bytes=CHECKED_BYTES, seconds=CHECK_SECONDS, examples=_EXAMPLES)
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
        _refuse_empty(draft, path)
        trial = _tried(path, draft, bounds, advising=False)
    reasons = tuple(trial.tally.reasons)
    tally, is_whole = trial.tally, trial.stopped_by is None
    return CheckedDraft(draft, tally.read, tally.failed, is_whole, reasons, tally.repeated_headers)


def _refuse_empty(draft: Draft, path: Path) -> None:
    if not draft.columns:
        why = "; ".join(f"{name!r} {reason}" for name, reason in list(draft.left_out.items())[:5])
        raise Invalid(f"{path.name} has no column that a table could have. {why}".strip(), remedy="Check the file.")


def _tried(path: Path, draft: Draft, bounds: Bounds, *, advising: bool = True) -> TrialRun:
    with path.open("rb") as file:
        pieces = iter(lambda: file.read(_READ_BYTES), b"")
        options = UploadOptions(file_name=path.name)
        return try_file(pieces, draft.definition(), options, bounds, advising=advising)


def _mended(path: Path, draft: Draft, trial: TrialRun) -> Draft:
    reasons = [reason for reason in trial.tally.reasons if not _is_footer(draft, reason)]
    rules = {reason.rule for reason in reasons}
    if "undecodable" in rules:
        return _without_undecodable(path, draft)
    if rules & set(_KEY_RULES):
        return _without_key(draft, reasons)
    for name in [reason.column for reason in reasons if reason.rule == "unknown_field"]:
        draft = replace(draft, left_out={**draft.left_out, name or "": "does not occur in the rows looked at"})
    for advice in trial.advice(reasons):
        draft = _widened(draft, advice)
    return draft


def _is_footer(draft: Draft, reason: ReasonCount) -> bool:
    """Whether only the totals at the end of the file have this fault."""
    return 0 < reason.rows <= len(draft.footers) and all(each.line in draft.footers for each in reason.examples)


def _without_key(draft: Draft, reasons: list[ReasonCount]) -> Draft:
    """Drops the key. Its columns stay, nullable where a row has no value."""
    empty = {reason.column for reason in reasons if reason.rule == "primary_key"}
    columns = (replace(column, nullable=column.nullable or column.name in empty) for column in draft.columns)
    return replace(draft, columns=tuple(columns), key=())


def _widened(draft: Draft, advice: Advice) -> Draft:
    column = next(each for each in draft.columns if each.name == advice.column)
    nullable = column.nullable or advice.nullable
    if advice.is_tolerable:
        return draft.retyped(replace(column, nullable=nullable)) if nullable != column.nullable else draft
    wider = _wider(column, advice)
    if wider is None:
        return draft.without(column.name, "has values of kinds that no type unites")
    wider = replace(wider, nullable=nullable or wider.nullable)
    if (wider.avro, wider.nullable, wider.written) != (column.avro, column.nullable, column.written):
        return draft.retyped(wider)
    return _last_resort(draft, column)


def _wider(column: Column, advice: Advice) -> Column | None:
    if advice.likely is not None and advice.declare:
        return advice.likely
    avro = next(iter(advice.fits), None)
    if avro is None:
        return None
    wider = column_of(column.name, "double" if avro == "float" else avro)
    written = column.written if wider.avro == column.avro else replace(AS_USUAL, null_texts=column.written.null_texts)
    return replace(wider, header=column.header, written=written)


def _last_resort(draft: Draft, column: Column) -> Draft:
    """For cells that the judge refuses although the type should take them: string takes more, and bytes take anything."""
    wider = {"string": "bytes", "bytes": None}
    avro = wider.get(column.kind if column.logical is None else "", "string")
    if avro is None or (draft.is_strict and avro == "string"):
        return draft.without(column.name, "has values that the judge does not take as any type")
    return draft.retyped(replace(column_of(column.name, avro, column.nullable), header=column.header))


def _without_undecodable(path: Path, draft: Draft) -> Draft:
    """Tries each column alone: a chunk that cannot be read does not tell which column is the cause."""
    for column in draft.columns:
        alone = replace(draft, columns=(column,), key=(), left_out={"": "only one is tried"})
        trial = _tried(path, alone, Bounds(rows=1))
        if any(reason.rule == "undecodable" for reason in trial.tally.reasons):
            draft = draft.without(column.name, "cannot be decoded")
    return draft
