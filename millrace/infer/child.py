"""A what-if in a process of its own: a job and then a file or chunks on stdin, the report or a refusal on stdout.

The job is one JSON line. A file follows unchanged. Chunks follow as records of raw-input, each after its length."""

import json
import os
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from millrace.bounded.limits import bound_process
from millrace.formats.cut import UploadOptions
from millrace.infer.trial import Bounds, TrialRun, try_file
from millrace.model.errors import Invalid, MillraceError
from millrace.model.table import Definition
from millrace.wire.envelope import unpack_rows, unpack_stamp

FRAME = struct.Struct("<I")
_PIECE_BYTES = 1 << 18


def main() -> None:
    given, out = sys.stdin.buffer, sys.stdout.buffer
    job = json.loads(given.readline())
    bound_process(job["memory_bytes"], job.get("most_written", 0))
    # In case the parent ends without killing us. The parent waits for slow senders, so it sets the real time limit.
    signal.alarm(int(job["lifetime_seconds"]))
    os.nice(10)
    out.write(json.dumps(_answer(job, given)).encode() + b"\n")
    out.flush()


def _answer(job: dict[str, Any], given: BinaryIO) -> dict[str, Any]:
    definition, bounds = Definition.from_json(job["definition"].encode()), Bounds(**job["bounds"])
    try:
        if job["chunks"]:
            return {"report": _try_chunks(given, definition, bounds).report()}
        pieces = iter(lambda: given.read1(_PIECE_BYTES), b"")  # type: ignore[attr-defined]
        trial = try_file(pieces, definition, UploadOptions(**job["options"]), bounds, Path(job["spool_dir"]))
        return {"report": trial.report()}
    except MemoryError:
        return _refusal(Invalid("Judging the file takes more memory than a what-if may have.", remedy="Import it."))
    except MillraceError as error:
        return _refusal(error)


def _refusal(error: MillraceError) -> dict[str, Any]:
    return {"refusal": {"code": error.code, "message": error.message, "remedy": error.remedy}}


def _try_chunks(given: BinaryIO, definition: Definition, bounds: Bounds) -> TrialRun:
    trial = TrialRun(definition, bounds)
    for record in _frames(given):
        header, payload = unpack_stamp(record)
        if header is not None and not trial.stopped_by:
            trial.take_sent(header, unpack_rows(header, payload))
    return trial


def _frames(given: BinaryIO) -> Iterator[bytes]:
    while prefix := given.read(FRAME.size):
        yield given.read(FRAME.unpack(prefix)[0])


if __name__ == "__main__":
    main()
