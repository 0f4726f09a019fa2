"""A file judged on this machine by a declaration, for `validate` without a platform."""

from dataclasses import asdict
from typing import Any, BinaryIO, cast

from millrace.cli.declarations import Declaration
from millrace.client.documents import TrialReport
from millrace.client.file_body import PIECE_BYTES
from millrace.client.file_options import FileOptions
from millrace.declare.table import encoding_of, parse_table
from millrace.formats.cut import UploadOptions
from millrace.infer.trial import Bounds, try_file
from millrace.model.formats import file_type_of
from millrace.model.table import define


def report_on(
    stream: BinaryIO, declared: Declaration, written: FileOptions, rows: int | None, examples: int
) -> TrialReport:
    """The platform's answer, without the names of a tenant and a revision."""
    declaration = parse_table(declared.document)
    written_as: dict[str, Any] = {**asdict(written), "encoding": encoding_of(written.encoding)}
    written_as["file_type"] = file_type_of(written_as.pop("format"))
    written_as["file_name"] = written.file_name or ""
    options = UploadOptions(**written_as, max_plain_bytes=declaration.max_file_bytes)
    pieces = iter(lambda: stream.read(PIECE_BYTES), b"")
    trial = try_file(pieces, define(declared.tenant, declaration, 0), options, Bounds(rows=rows, examples=examples))
    return cast(TrialReport, {**trial.report(), "tenant": "", "judged_by": "declaration", "file": written.file_name})
