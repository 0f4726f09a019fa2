"""A tenant's files in HDFS. A file is written beside its place and renamed when it is whole."""

import uuid
from collections.abc import Iterator
from typing import IO

from millrace.model.sinks import Fault, SinkFailed
from millrace.outbound.http import pieces_of
from millrace.outbound.webhdfs import WebHdfs


class HdfsFiles(WebHdfs):
    def put_stream(self, name: str, body: IO[bytes], size: int) -> None:
        folder, slash, _ = name.rpartition("/")
        partial = f"{folder}{slash}.{uuid.uuid4().hex}.partial"
        self.create(partial, lambda: pieces_of(body), size)
        found = self.size(partial)
        if found != size:
            self.delete(partial)
            raise SinkFailed(f"{name} has {found} bytes instead of {size}.", Fault.SINK)
        self.replace(partial, name)

    def names(self, folder: str) -> Iterator[str]:
        for entry in self.statuses(folder):
            name = f"{folder}/{entry['pathSuffix']}"
            if entry["type"] == "DIRECTORY":
                yield from self.names(name)
            else:
                yield name
