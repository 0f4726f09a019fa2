"""Where a tenant's files are put: the declared path in, a `FileStore` out.

Local paths must lie below the folder that the operator allows (MILLRACE_FILES_ROOT). Buckets are reached with the tenant's
own keys, never with those of the platform. Every host is judged like that of a webhook."""

import os
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

import pyarrow.fs as pafs

from millrace.model.errors import Invalid
from millrace.outbound.s3 import S3Objects
from millrace.outbound.s3_signing import S3Keys
from millrace.outbound.webhdfs import identity, name_node
from millrace.sink.context import SinkContext
from millrace.sink.files.gcs import GoogleFiles, SignedTokens
from millrace.sink.files.hdfs import HdfsFiles
from millrace.sink.files.settings import FilesSettings
from millrace.sink.settings import is_plain

ROOT_VARIABLE = "MILLRACE_FILES_ROOT"
SCHEMES = ("file", "s3", "gs", "webhdfs", "swebhdfs")
COPY_BYTES = 1 << 20


class FileStore(Protocol):
    """Names are relative to the store's root, parts joined by '/'."""

    def put_stream(self, name: str, body: IO[bytes], size: int) -> None:
        """Creates or replaces a file. A failure leaves it as it was before."""

    def get(self, name: str) -> bytes:
        """Raises FileNotFoundError."""

    def size(self, name: str) -> int:
        """Raises FileNotFoundError."""

    def names(self, folder: str) -> Iterable[str]:
        """Every file below the folder."""

    def delete(self, name: str) -> None:
        """A file that does not exist counts as deleted."""


class FolderStore:
    """A folder on this machine. A file is written beside its place and renamed when it is whole."""

    def __init__(self, root: str) -> None:
        self._files = pafs.LocalFileSystem()
        self._root = root.rstrip("/")

    def put_stream(self, name: str, body: IO[bytes], size: int) -> None:
        place = self._place(name)
        written = f"{os.path.dirname(place)}/.{uuid.uuid4().hex}.partial"
        self._files.create_dir(os.path.dirname(place), recursive=True)
        # No `with`: leaving it with an error would close the stream and complete a partial file.
        out = self._files.open_output_stream(written)
        while piece := body.read(COPY_BYTES):
            out.write(piece)
        out.close()
        self._files.move(written, place)

    def get(self, name: str) -> bytes:
        with self._files.open_input_stream(self._place(name)) as stream:
            return bytes(stream.read())

    def size(self, name: str) -> int:
        found = self._files.get_file_info(self._place(name))
        if found.type != pafs.FileType.File:
            raise FileNotFoundError(name)
        return int(found.size)

    def names(self, folder: str) -> list[str]:
        chosen = pafs.FileSelector(self._place(folder), allow_not_found=True, recursive=True)
        cut = len(self._root) + 1
        return [one.path[cut:] for one in self._files.get_file_info(chosen) if one.type == pafs.FileType.File]

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._files.delete_file(self._place(name))

    def _place(self, name: str) -> str:
        return f"{self._root}/{name}"


def below_tenant(settings: FilesSettings, context: SinkContext) -> str:
    """Where the tables are within a tenant's folder. In the operator's folder each tenant has one folder at the top, so no
    path leads into another tenant's. In a bucket, which is the tenant's own, the path comes first."""
    parts = urlsplit(settings.path)
    if parts.scheme != "file":
        return ""
    relative = _local_path(parts.path, context).relative_to(_allowed_root(context)).as_posix()
    return "" if relative == "." else relative


def check_path(settings: FilesSettings, context: SinkContext) -> None:
    """Refuses a declared path that could never be written to."""
    parts = urlsplit(settings.path)
    if parts.scheme not in SCHEMES:
        remedy = "Write webhdfs://HOST:9870/PATH." if parts.scheme == "hdfs" else f"Begin with {', '.join(SCHEMES)}."
        raise Invalid(f"{settings.path!r:.80} is no path of a kind that is known.", remedy=remedy, code="bad_path")
    if parts.scheme == "file":
        _local_path(parts.path, context)
        return
    if not is_plain(parts):
        raise Invalid(f"{settings.path!r:.80} cannot be read.", remedy="Write s3://BUCKET/PATH.", code="bad_path")
    needed = {"s3": ("access_key", "secret_key"), "gs": ("credentials",)}.get(parts.scheme, ())
    settings.refuse_without(needed, f"A {parts.scheme}:// path")


def open_store(settings: FilesSettings, context: SinkContext) -> FileStore:
    check_path(settings, context)
    parts = urlsplit(settings.path)
    match parts.scheme:
        case "file":
            return FolderStore(str(_allowed_root(context)))
        case "s3":
            return _s3(parts, settings, context)
        case "gs":
            tokens = SignedTokens(context.secret(settings.credentials or ""))
            return GoogleFiles(parts.netloc, parts.path, tokens, context.permitted, settings.endpoint)
    who = identity(settings.user, context.secret(settings.token) if settings.token else None)
    return HdfsFiles(name_node(parts), parts.path, who, context.permitted)


def _allowed_root(context: SinkContext) -> Path:
    if context.files_root is None:
        raise Invalid(
            "No local folder is open to file sinks.", remedy=f"Have the operator set {ROOT_VARIABLE}.", code="bad_path"
        )
    return context.files_root.resolve()


def _local_path(path: str, context: SinkContext) -> Path:
    wanted = Path(unquote(path)).resolve()
    if not wanted.is_relative_to(_allowed_root(context)):
        raise Invalid(f"{path!r:.80} is not below the folder that is open to file sinks.", code="bad_path")
    return wanted


def _s3(parts: SplitResult, settings: FilesSettings, context: SinkContext) -> S3Objects:
    keys = S3Keys(context.secret(settings.access_key or ""), context.secret(settings.secret_key or ""))
    place = parts.netloc, parts.path.strip("/")
    return S3Objects(*place, keys, context.permitted, settings.endpoint, settings.region)
