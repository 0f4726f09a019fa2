"""Opens the right cutter for an upload: a definition and the uploader's options in, a cutter out. Stages before the cutter
decode the uploaded bytes, and refuse too many of them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from millrace.formats.decompress import BrokenOff, Decompress
from millrace.formats.pieces import CutPiece, Cutter, Opening, PieceLimits, ResumePoint, UploadOptions
from millrace.formats.transcode import Transcode
from millrace.model.errors import Invalid, MillraceError, words_of
from millrace.model.formats import ENCODINGS, Format, every_format, file_types, format_named, load
from millrace.model.table import CsvDialect, Definition

__all__ = ["CutPiece", "Cutter", "PieceLimits", "ResumePoint", "UploadOptions", "open_cutter"]

# The first upload of a format should not wait for imports.
for _each in every_format():
    load(_each.cutter)


class Meter:
    """A stage that refuses more bytes than the options allow."""

    transparent = True

    def __init__(self, options: UploadOptions, passed: int) -> None:
        self._options = options
        self._passed = passed

    def feed(self, piece: bytes) -> Iterator[bytes]:
        self._passed += len(piece)
        self._options.refuse_too_much(self._passed)
        yield piece

    def finish(self) -> Iterator[bytes]:
        yield from ()


Stage = Decompress | Transcode | Meter


class Pipeline:
    """Passes each piece through the stages in order, and the result to the cutter."""

    def __init__(self, stages: Sequence[Stage], cutter: Cutter, what: str) -> None:
        self._stages = stages
        self._cutter = cutter
        self._what = what

    def feed(self, piece: bytes) -> Iterator[CutPiece]:
        return self._read(self._through(piece, 0))

    def finish(self) -> Iterator[CutPiece]:
        return self._read(self._finish())

    def _read(self, cuts: Iterator[CutPiece]) -> Iterator[CutPiece]:
        try:
            yield from cuts
        except (MillraceError, OSError, MemoryError):
            raise
        except Exception as error:
            # A reader may raise anything on foreign bytes. A second attempt would raise it again.
            reason = f"{type(error).__name__}: {words_of(error)}"
            raise Invalid(
                f"{self._what} cannot be read after {self._cutter.rows_cut()} rows: {reason}"[:400],
                remedy="Is it whole, and is its type the one that was named?",
            ) from error

    def _finish(self) -> Iterator[CutPiece]:
        for number, stage in enumerate(self._stages, 1):
            try:
                for piece in stage.finish():
                    yield from self._through(piece, number)
            except BrokenOff as broken:
                yield from self._cutter.drain()
                raise Invalid(
                    f"{self._what} ends in the middle of the {broken.kind} stream after {self.rows_cut()} rows.",
                    remedy="Send the whole file again.",
                ) from broken
        yield from self._cutter.finish()

    def drain(self) -> Iterator[CutPiece]:
        return self._cutter.drain()

    def resume_point(self) -> ResumePoint | None:
        is_plain = all(stage.transparent for stage in self._stages)
        return self._cutter.resume_point() if is_plain else None

    def rows_cut(self) -> int:
        return self._cutter.rows_cut()

    def repeated_headers(self) -> int:
        return self._cutter.repeated_headers()

    def close(self) -> None:
        self._cutter.close()

    def _through(self, piece: bytes, number: int) -> Iterator[CutPiece]:
        if number == len(self._stages):
            yield from self._cutter.feed(piece)
            return
        for changed in self._stages[number].feed(piece):
            yield from self._through(changed, number + 1)


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
    stages.append(Meter(options, resume["offset"] if resume else 0))
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
