"""Forms with a file: what does not fit into memory waits on the home's disk, not on the machine's small temporary one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any

from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from millrace.model.errors import Invalid

MOST_FIELDS = 20


class _SpoolingParser(MultiPartParser):
    def __init__(self, request: Request, folder: Path) -> None:
        super().__init__(request.headers, request.stream(), max_files=1, max_fields=MOST_FIELDS)
        self._folder = folder

    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        upload = self._current_part.file
        if upload is not None:
            spool: Any = SpooledTemporaryFile(max_size=self.spool_max_size, dir=str(self._folder))  # noqa: SIM115
            upload.file.close()
            upload.file = spool
            self._files_to_close_on_error.append(spool)


@asynccontextmanager
async def read_form(request: Request, folder: Path) -> AsyncIterator[FormData]:
    """Its file is gone when the context ends."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Invalid(
            "This is no form with a file.", remedy="Send multipart/form-data, with the file in the field `file`."
        )
    try:
        form = await _SpoolingParser(request, folder).parse()
    except MultiPartException as wrong:
        raise Invalid(f"The form cannot be read: {wrong.message}", remedy="Send it as multipart/form-data.") from None
    try:
        yield form
    finally:
        await form.close()
