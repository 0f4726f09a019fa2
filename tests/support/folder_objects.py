"""A remote store in a folder: what a bucket does, without a server."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from millrace.lake.store import Store
from millrace.outbound.objects import MOST_FETCHED, MOST_READ, Entry


class FolderObjects:
    def __init__(self, root: Path) -> None:
        self.url = f"folder://{root.name}"
        self._store = Store(root)
        self.fetched: list[str] = []

    def get(self, name: str, most: int = MOST_READ) -> bytes:
        return self._store.read(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self._store.read(name)[start : start + length]

    def fetch(self, name: str, path: str, most: int = MOST_FETCHED) -> None:
        self.fetched.append(name)
        shutil.copyfile(self._store.path(name), path)

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._store.write(name, data)

    def put_file(self, name: str, path: str) -> None:
        self._store.write(name, Path(path).read_bytes())

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        return self._store.put_if_absent(name, data)

    def size(self, name: str) -> int:
        return self._store.size(name)

    def list(self, folder: str) -> Sequence[Entry]:
        return self._store.list(folder)

    def delete(self, name: str) -> None:
        self._store.delete(name)
