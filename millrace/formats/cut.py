"""Opens the right cutter for an upload: a definition and what the uploader says in, a cutter out."""

from dataclasses import replace
from pathlib import Path

from millrace.declare.table import ENCODINGS, FILE_TYPES
from millrace.formats.avro_cut import AvroCutter
from millrace.formats.csv_cut import csv_cutter
from millrace.formats.decompress import Decompress
from millrace.formats.line_cut import json_lines_cutter
from millrace.formats.parquet_cut import ParquetCutter
from millrace.formats.pieces import Cut, Cutter, Limits, ResumePoint, UploadOptions
from millrace.formats.pipeline import Meter, Pipeline, Stage
from millrace.formats.transcode import Transcode
from millrace.model.errors import Invalid
from millrace.model.table import CsvDialect, Definition

__all__ = ["Cut", "Cutter", "Limits", "ResumePoint", "UploadOptions", "open_cutter"]


def open_cutter(
    definition: Definition,
    options: UploadOptions,
    *,
    resume: ResumePoint | None = None,
    spool_dir: Path | None = None,
    limits: Limits | None = None,
) -> Cutter:
    """A cutter for an upload from its start, or from `resume["offset"]` on. Parquet is spooled in `spool_dir`."""
    file_type = options.file_type or definition.table.file_type
    dialect = _dialect(definition.table.csv, options)
    stages = [] if resume else _stages(file_type, dialect, options)
    if options.max_plain_bytes is not None:
        stages.append(Meter(options.max_plain_bytes, options.what, resume["offset"] if resume else 0))
    cutter = _cutter(file_type, definition, dialect, options, resume, limits or Limits(), spool_dir)
    return Pipeline(stages, cutter, options.what)


def _stages(file_type: str, dialect: CsvDialect, options: UploadOptions) -> list[Stage]:
    decompress = Decompress(options.compression, options.what)
    if file_type not in ("csv", "jsonl"):
        return [decompress]
    return [decompress, Transcode(dialect.encoding if file_type == "csv" else "utf-8", options.what)]


def _cutter(
    file_type: str,
    definition: Definition,
    dialect: CsvDialect,
    options: UploadOptions,
    resume: ResumePoint | None,
    limits: Limits,
    spool_dir: Path | None,
) -> Cutter:
    match file_type:
        case "csv":
            return csv_cutter(definition, dialect, options, limits, resume)
        case "jsonl":
            return json_lines_cutter(options, limits, resume)
        case "avro":
            return AvroCutter(definition, options, limits, resume)
        case "parquet":
            return ParquetCutter(definition, options, limits, spool_dir)
    raise Invalid(f"{options.what} is said to be {file_type!r}.", remedy=f"Known types: {', '.join(FILE_TYPES)}.")


def _dialect(declared: CsvDialect, options: UploadOptions) -> CsvDialect:
    given = {name: getattr(options, name) for name in ("header", "delimiter", "quote", "null_text", "encoding")}
    dialect = replace(declared, **{name: value for name, value in given.items() if value is not None})
    for name, value in (("delimiter", dialect.delimiter), ("quote", dialect.quote)):
        if len(value) != 1 or not value.isascii() or value in "\r\n":
            raise Invalid(f"The {name} is said to be {value!r:.40}.", remedy="Give one ASCII character.")
    if dialect.delimiter == dialect.quote:
        raise Invalid(f"Delimiter and quote are both {dialect.quote!r}.", remedy="Give different ones.")
    if dialect.encoding not in ENCODINGS:
        raise Invalid(f"The encoding is said to be {dialect.encoding!r:.40}.", remedy=f"Known: {', '.join(ENCODINGS)}.")
    return dialect
