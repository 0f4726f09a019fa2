"""A platform for one bench: started in a folder of its own, tenant A's table declared, removed in the end."""

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.data import REPOSITORY, Data
from millrace.cli.child import ChildPlatform, running_platform
from millrace.client import Millrace, Submission
from millrace.client.documents import ImportDocument

BUILD = REPOSITORY / "build"
TENANT, TABLE = "client_a", "analytics"
# Many times what the longest import of a bench takes.
IMPORT_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Bench:
    """A running platform and what is measured with."""

    running: ChildPlatform
    connection: Millrace
    data: Data

    def declare_tenant(self, tenant: str = TENANT, **agreed: Any) -> None:
        self.connection.tenants.apply(tenant, {**_example("service_agreement"), "client": tenant, **agreed})

    def declare_table(self, table: str = TABLE, tenant: str = TENANT) -> None:
        """Tenant A's table as in the examples, without its limit on file size."""
        declaration = {**_example("data_file_configuration"), "table": table}
        del declaration["max_file_size_mb"]
        self.connection.tables.apply(tenant, table, declaration)

    def load(self, path: Path, table: str = TABLE, tenant: str = TENANT) -> float:
        """Seconds from submission to END; refuses anything but a complete import."""
        begun = time.perf_counter()
        document = self.finished(self.connection.imports.send_file(path, Submission(tenant, table))["id"])
        seconds = time.perf_counter() - begun
        if document["state"] != "completed":
            raise RuntimeError(f"{path.name} is {document['state']}: {document['error']}")
        return seconds

    def finished(self, import_id: str) -> ImportDocument:
        return self.connection.imports.wait(import_id, timeout=IMPORT_SECONDS)

    def median_load(self, paths: list[Path], table: str = TABLE) -> float:
        return statistics.median(self.load(path, table) for path in paths)


@contextmanager
def bench_platform(**environ: str) -> Iterator[Bench]:
    BUILD.mkdir(exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="bench-home-", dir=BUILD))
    try:
        with running_platform(home, environ) as running, Millrace.from_home(home) as connection:
            bench = Bench(running, connection, Data(BUILD / "bench-data"))
            bench.declare_tenant()
            bench.declare_table()
            yield bench
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _example(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((REPOSITORY / "examples" / TENANT / f"{name}.json").read_text())
    return document
