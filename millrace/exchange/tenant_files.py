"""All files of a tenant: how much they take, and their removal when the tenant is erased.

The server asks; every process may have written them."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from millrace.exchange.home import Home
from millrace.model.names import checked_name


@dataclass(frozen=True, slots=True)
class TenantFiles:
    home: Home

    def stored_bytes(self, tenant: str) -> int:
        """What the tenant's tables and rejected rows take here."""
        return sum(_folder_bytes(root / tenant) for root in (self.home.lake, self.home.errors))

    def remove(self, tenant: str) -> list[tuple[str, int]]:
        """The name and the size of each file or folder that was there."""
        return [_removed(path) for path in self._paths(checked_name("tenant", tenant)) if path.exists()]

    def _paths(self, tenant: str) -> Iterator[Path]:
        home = self.home
        yield from (root / tenant for root in (home.lake, home.errors, home.remote, home.all_staged))
        yield from sorted(home.parked.glob(f"*/{tenant}"))
        yield from (
            home.held_chunks(tenant),
            home.source(tenant),
            home.handled(tenant),
            home.app_request(tenant),
            home.data_keys(tenant),
        )


def _removed(path: Path) -> tuple[str, int]:
    if path.is_dir():
        size = _folder_bytes(path)
        shutil.rmtree(path)
    else:
        size = path.stat().st_size
        path.unlink(missing_ok=True)
    return f"{path.parent.name}/{path.name}", size


def _folder_bytes(folder: Path) -> int:
    """The bytes of all files below it; what goes meanwhile is not counted."""
    size = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    size += _folder_bytes(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    size += entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return size
    return size
