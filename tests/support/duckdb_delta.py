"""Reads a table with DuckDB's own Delta reader, in an environment of its own: the pinned DuckDB has no such extension in the
package index. `scripts/setup duckdb_delta` makes the environment."""

import json
import os
import subprocess
from pathlib import Path

SECONDS = 60
_READ = """
import json, sys
import duckdb, duckdb_extensions
connection = duckdb.connect()
# A slow query would draw its progress on standard output.
connection.execute("set enable_progress_bar = false")
duckdb_extensions.import_extension("delta", con=connection)
connection.execute("load delta")
path, version, columns, where = json.loads(sys.argv[1])
pinned = "" if version is None else f", version => {int(version)}"
names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
rows = connection.execute(f"select {names} from delta_scan($path{pinned}) where {where}", {"path": path}).fetchall()
print()
print(json.dumps(rows))
"""


def delta_scan(root: Path, version: int | None, *columns: str, where: str = "true") -> list[tuple[object, ...]]:
    asked = json.dumps([str(root), version, columns, where])
    ran = subprocess.run([_python(), "-c", _READ, asked], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return [tuple(row) for row in json.loads(ran.stdout.splitlines()[-1])]


def _python() -> Path:
    caches = os.environ.get("MILLRACE_CACHE") or Path(
        os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "millrace"
    )
    python = Path(caches, "duckdb-delta", "bin", "python")
    assert python.exists(), "DuckDB with its Delta reader is not installed: run `scripts/setup duckdb_delta`."
    return python
