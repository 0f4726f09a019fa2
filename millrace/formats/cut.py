"""Opens the right cutter for an upload: a definition and the uploader's options in, a cutter out."""

from dataclasses import replace
from pathlib import Path

from millrace.formats.decompress import Decompress
from millrace.formats.pieces import CutPiece, Cutter, Opening, PieceLimits, ResumePoint, UploadOptions
from millrace.formats.pipeline import Meter, Pipeline, Stage
from millrace.formats.transcode import Transcode
from millrace.model.errors import Invalid
from millrace.model.formats import ENCODINGS, Format, every_format, file_types, format_named, load
from millrace.model.table import CsvDialect, Definition

__all__ = ["CutPiece", "Cutter", "PieceLimits", "ResumePoint", "UploadOptions", "open_cutter"]

# The first upload of a format should not wait for imports.
for _each in every_format():
    load(_each.cutter)


def open_cutter(
    definition: Definition,
    options: UploadOptions,
    *,
    resume: ResumePoint | None = None,
    spool_dir: Path | None = None,
    limits: PieceLimits | None = None,
) -> Cutter:
    """A cutter for an upload from its start, or from `resume["offset"]` on. Parquet is spooled in `spool_dir`."""
    name = options.file_type or definition.table.file_type
    found = format_named(name)
    if found is None:
        raise Invalid(
            f"{options.what} has the unknown type {name!r}.", remedy=f"Known types: {', '.join(file_types())}."
        )
    dialect = _dialect(definition.table.csv, options)
    stages = [] if resume else _stages(found, dialect, options)
    if options.max_plain_bytes is not None:
        stages.append(Meter(options.max_plain_bytes, options.what, resume["offset"] if resume else 0))
    cutter: Cutter = load(found.cutter)(
        Opening(definition, options, dialect, limits or PieceLimits(), resume, spool_dir)
    )
    return Pipeline(stages, cutter, options.what)


def _stages(found: Format, dialect: CsvDialect, options: UploadOptions) -> list[Stage]:
    decompress = Decompress(options.compression, options.what)
    if not found.is_text:
        return [decompress]
    return [decompress, Transcode(dialect.encoding if found.has_dialect else "utf-8", options.what)]


def _dialect(declared: CsvDialect, options: UploadOptions) -> CsvDialect:
    given = {name: getattr(options, name) for name in ("header", "delimiter", "quote", "null_text", "encoding")}
    dialect = replace(declared, **{name: value for name, value in given.items() if value is not None})
    for name, value in (("delimiter", dialect.delimiter), ("quote", dialect.quote)):
        if len(value) != 1 or not value.isascii() or value in "\r\n":
            raise Invalid(f"The {name} is {value!r:.40}.", remedy="Give one ASCII character.")
    if dialect.delimiter == dialect.quote:
        raise Invalid(f"Delimiter and quote are both {dialect.quote!r}.", remedy="Give different ones.")
    if dialect.encoding not in ENCODINGS:
        raise Invalid(f"The encoding is {dialect.encoding!r:.40}.", remedy=f"Known: {', '.join(ENCODINGS)}.")
    return dialect
