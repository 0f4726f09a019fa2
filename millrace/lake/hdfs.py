"""A table's objects in HDFS. A file is written under a temporary name and renamed when it is complete. The name node refuses
a rename that would overwrite: so a name is claimed once."""

import os
import uuid
from collections.abc import Mapping, Sequence

from millrace.lake.store import TEMPORARY_FOLDER
from millrace.outbound.http import pieces_of
from millrace.outbound.objects import Entry
from millrace.outbound.pinning import Addresses
from millrace.outbound.webhdfs import WebHdfs


class HdfsObjects(WebHdfs):
    """`who` are the parameters that say who asks; `base` is the name node's HTTP address."""

    def __init__(self, url: str, base: str, root: str, who: Mapping[str, str], addresses: Addresses) -> None:
        super().__init__(base, root, who, addresses)
        self.url = url

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._replace(self._written(data), name)

    def put_file(self, name: str, path: str) -> None:
        written = _temporary()
        with open(path, "rb") as file:
            self.create(written, lambda: pieces_of(file), os.path.getsize(path))
        self._replace(written, name)

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        written = self._written(data)
        if self.rename(written, name):
            return True
        try:
            # Refused because the name is taken, or because its folder is not there yet.
            self.size(name)
        except FileNotFoundError:
            self.make_folder(os.path.dirname(name))
            if self.rename(written, name):
                return True
        self.delete(written)
        return False

    def list(self, folder: str) -> Sequence[Entry]:
        prefix = f"{folder}/" if folder else ""
        entries = [
            Entry(prefix + found["pathSuffix"], found["length"], found["modificationTime"] / 1000)
            for found in self.statuses(folder)
            if found["type"] == "FILE"
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def _written(self, data: bytes | memoryview) -> str:
        written = _temporary()
        self.create(written, lambda: iter([bytes(data)]), len(data))
        return written

    def _replace(self, written: str, name: str) -> None:
        try:
            self.replace(written, name)
        except FileNotFoundError:
            self.make_folder(os.path.dirname(name))
            self.replace(written, name)


def _temporary() -> str:
    return f"{TEMPORARY_FOLDER}/{uuid.uuid4().hex}"
