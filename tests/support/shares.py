"""What each of several pytest processes (`pytest -n 2`) runs.

Tests that share an expensive service run in one process, so that the service is started once."""

from typing import Any

from xdist.scheduler import LoadScopeScheduling

# The tests below these folders share a platform, or the same servers.
SHARED = {
    "tests/e2e/": "platform",
    "tests/faults/": "platform",
    "tests/integration/": "servers",
    "tests/sinks/": "servers",
}


class Shares(LoadScopeScheduling):  # type: ignore[misc]
    """In the order of collection: the long shares come first."""

    def __init__(self, config: Any, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        """All other modules are a share each."""
        folders = (share for folder, share in SHARED.items() if nodeid.startswith(folder))
        return next(folders, nodeid.partition("::")[0])

    def remove_node(self, node: Any) -> str | None:
        """A test that ended its process is not run again: it would end the next process too."""
        units = self.assigned_work[node].values()
        crashed = next(((unit, test) for unit in units for test, is_done in unit.items() if not is_done), None)
        if crashed is None:
            return super().remove_node(node)
        unit, test = crashed
        unit[test] = True
        super().remove_node(node)
        return test
