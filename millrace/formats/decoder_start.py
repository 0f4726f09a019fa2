"""Loaded first by the process from which decoders are forked, before the libraries that read this.

Its allocator takes only what is asked for, so that a bound of the memory bounds what a file makes it take."""

import os
import sys
from typing import Any

os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"


class _WithoutPandas:
    """Arrow imports pandas, if it can, when the first array is made: that would be once for every upload."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("decoders do without it", name=name)


sys.meta_path.insert(0, _WithoutPandas())
