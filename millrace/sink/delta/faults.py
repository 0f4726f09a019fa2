"""Whose trouble a failed write is: an error in, the table's own failure out, or None if it is the platform's.

A table may be damaged, changed by another engine, without access or space, or in a place that does not answer. No
other table waits for it. The platform's troubles stop every table."""

import errno
from collections.abc import Callable
from pathlib import Path

from millrace.atomic import UNFINISHED
from millrace.model.errors import MillraceError
from millrace.model.sinks import Fault, SinkFailed

MOST_TEXT = 800
_OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT)
# Of this process, whatever table it was about to write.
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def table_failure(error: BaseException, folder: Path, is_on_our_disk: Callable[[Path], bool]) -> SinkFailed | None:
    """None if it is the platform's trouble. `folder` is where the table is."""
    if isinstance(error, SinkFailed):
        return error
    if _is_platforms(error, folder, is_on_our_disk):
        return None
    return SinkFailed(f"{folder} cannot be written: {_words(error)}", Fault.TABLE, _remedy(error, folder))


def _is_platforms(error: BaseException, folder: Path, is_on_our_disk: Callable[[Path], bool]) -> bool:
    if isinstance(error, OSError) and error.errno in _OUT_OF_SPACE:
        return is_on_our_disk(folder)
    if isinstance(error, OSError):
        return error.errno in _OUT_OF_RESOURCES
    # A panic in a library written in Rust is no Exception either, and it is about the data.
    return isinstance(error, MemoryError | KeyboardInterrupt | SystemExit | GeneratorExit)


def _words(error: BaseException) -> str:
    if isinstance(error, MillraceError):
        return error.message
    if isinstance(error, OSError) and str(error.filename).endswith(UNFINISHED):
        # Its name is another one at every try, and says nothing.
        return f"{type(error).__name__}: {error.strerror}"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:MOST_TEXT]


def _remedy(error: BaseException, folder: Path) -> str:
    if isinstance(error, MillraceError) and error.remedy:
        return error.remedy
    if isinstance(error, FileNotFoundError):
        return (
            f"Put the file back into {folder} from a copy. If nobody has one, undo what needs it (RESTORE TABLE … TO VERSION "
            "AS OF …), or take the missing files out of the table (FSCK REPAIR TABLE; DeltaTable.repair of deltalake)."
        )
    if isinstance(error, OSError):
        return f"Mend the access to {folder}, or its space."
    return f"Restore {folder} from a copy, or undo what another program changed there."
