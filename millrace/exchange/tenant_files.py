"""All files of a tenant: how much they take, and their removal when the tenant is erased.

The server asks; every process may have written them."""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from millrace.beneath.folder import hold
from millrace.beneath.trees import remove, size
from millrace.exchange.home import Home
from millrace.exchange.log_keys import drop_remembered
from millrace.model.names import checked_name


@dataclass(frozen=True, slots=True)
class TenantFiles:
    home: Home

    def stored_bytes(self, tenant: str) -> int:
        """What the tenant's tables, rejected rows and kept raw chunks take here."""
        return sum(_folder_bytes(root / tenant) for root in (self.home.lake, self.home.errors, self.home.raw))

    def remove(self, tenant: str) -> list[tuple[str, int]]:
        """The name and the size of each file or folder that was there."""
        removed = [_removed(path) for path in self._paths(checked_name("tenant", tenant)) if os.path.lexists(path)]
        drop_remembered()
        return removed

    def _paths(self, tenant: str) -> Iterator[Path]:
        home = self.home
        yield from (root / tenant for root in (home.lake, home.errors, home.raw, home.remote, home.all_staged))
        yield from sorted(home.parked.glob(f"*/{tenant}"))
        yield from sorted(home.app_requests.glob(f"{tenant}.*"))
        yield from (
            home.held_chunks(tenant),
            home.source(tenant),
            home.handled(tenant),
            home.app_request(tenant),
            home.data_keys(tenant),
            home.log_keys / tenant,
        )


def _removed(path: Path) -> tuple[str, int]:
    """The path above is the platform's own; what it names, and all beneath, a program may have written."""
    with hold(path.parent) as parent:
        status = parent.status(path.name)
        if stat.S_ISLNK(status.st_mode):
            # Only the operator can have made it, to another disk: the files there would stay behind.
            raise OSError(errno.ELOOP, "is a link: remove what it leads to, then the link", str(path))
        taken = _folder_bytes(path) if stat.S_ISDIR(status.st_mode) else status.st_size
        remove(parent, path.name)
    return f"{path.parent.name}/{path.name}", taken


def _folder_bytes(path: Path) -> int:
    """The bytes of all files below it; what goes meanwhile is not counted."""
    try:
        with hold(path) as folder:
            return size(folder)
    except FileNotFoundError:
        return 0
