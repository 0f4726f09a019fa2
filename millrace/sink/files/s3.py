"""A tenant's files in an S3 bucket. An object appears whole or not at all."""

from typing import IO

from millrace.outbound.s3 import S3Objects


class S3Files:
    def __init__(self, objects: S3Objects) -> None:
        self._objects = objects

    def put(self, name: str, body: IO[bytes], size: int) -> None:
        self._objects.put_stream(name, body, size)

    def read(self, name: str) -> bytes | None:
        try:
            return self._objects.get(name)
        except FileNotFoundError:
            return None

    def size(self, name: str) -> int | None:
        try:
            return self._objects.size(name)
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> dict[str, int]:
        return {entry.name: entry.size for entry in self._objects.list(folder, is_deep=True)}

    def delete(self, name: str) -> None:
        self._objects.delete(name)

    def close(self) -> None:
        """Connections are the process's, not this sink's."""
