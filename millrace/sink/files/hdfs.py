"""A tenant's files in HDFS. A file is written beside its place and renamed when it is whole."""

import uuid
from typing import IO

from millrace.model.sinks import Fault, SinkFailed
from millrace.outbound.http import pieces_of
from millrace.outbound.webhdfs import WebHdfs


class HdfsFiles:
    def __init__(self, files: WebHdfs) -> None:
        self._files = files

    def put(self, name: str, body: IO[bytes], size: int) -> None:
        folder, _, _ = name.rpartition("/")
        partial = f"{folder}/.{uuid.uuid4().hex}.partial" if folder else f".{uuid.uuid4().hex}.partial"
        self._files.create(partial, stream=lambda: pieces_of(body))
        found = self.size(partial)
        if found != size:
            self.delete(partial)
            raise SinkFailed(f"{name} has {found} bytes instead of {size}.", Fault.SINK)
        self._files.replace(partial, name)

    def read(self, name: str) -> bytes | None:
        try:
            return self._files.read(name)
        except FileNotFoundError:
            return None

    def size(self, name: str) -> int | None:
        found = self._files.status(name)
        return None if found is None or found["type"] != "FILE" else int(found["length"])

    def list(self, folder: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for entry in self._files.list(folder):
            name = f"{folder}/{entry['pathSuffix']}"
            if entry["type"] == "DIRECTORY":
                found |= self.list(name)
            else:
                found[name] = int(entry["length"])
        return found

    def delete(self, name: str) -> None:
        self._files.delete(name)

    def close(self) -> None:
        """Connections are the process's, not this sink's."""
