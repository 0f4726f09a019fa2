"""Opens the right cutter for an upload: a definition and what the uploader says in, a cutter out.."""

from dataclasses import replace

from millrace.formats.csv_cut import csv_cutter
from millrace.formats.pieces import Cut, Cutter, ResumePoint, UploadOptions
from millrace.model.errors import Invalid
from millrace.model.table import CsvDialect, Definition

__all__ = ["Cut", "Cutter", "ResumePoint", "UploadOptions", "open_cutter"]


def open_cutter(definition: Definition, options: UploadOptions, *, resume: ResumePoint | None = None) -> Cutter:
    file_type = options.file_type or definition.table.file_type
    if file_type == "csv":
        return csv_cutter(definition, _dialect(definition.table.csv, options), options, resume)
    raise Invalid(f"{options.what} is said to be {file_type!r}.", remedy="Send CSV.")


def _dialect(declared: CsvDialect, options: UploadOptions) -> CsvDialect:
    given = {name: getattr(options, name) for name in ("header", "delimiter", "quote", "null_text", "encoding")}
    return replace(declared, **{name: value for name, value in given.items() if value is not None})
