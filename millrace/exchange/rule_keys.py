"""Hashed keys of an import's rows, by chunk and rule, for rules that compare rows of different chunks.

The workers of the data plane write those of a chunk before its verdict. The accountant reads them all when the import ends;
the server forgets them afterwards. If they are lost, the quality report counts too few repeated or dangling keys."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from millrace.atomic import replacing
from millrace.exchange.home import Home

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class RuleKeys:
    home: Home

    def keep(self, import_id: str, chunk: int, keys: Mapping[str, Hashes]) -> None:
        """Kept again, the keys of a chunk are the same."""
        folder = self._folder(import_id)
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / f"{chunk:08d}.npz") as file:
            np.savez(file, allow_pickle=False, **keys)

    def hashes(self, import_id: str, name: str) -> list[Hashes]:
        """What each chunk left under this name, in the order of the chunks."""
        return [_stored(path, name) for path in sorted(self._folder(import_id).glob("*.npz"))]

    def imports(self) -> list[str]:
        return sorted(path.name for path in self.home.quality.iterdir()) if self.home.quality.is_dir() else []

    def forget(self, import_id: str) -> None:
        shutil.rmtree(self._folder(import_id), ignore_errors=True)

    def _folder(self, import_id: str) -> Path:
        return self.home.quality / import_id


def _stored(path: Path, name: str) -> Hashes:
    with np.load(path) as stored:
        found: Hashes = stored[name] if name in stored else np.empty(0, np.uint64)
        return found
