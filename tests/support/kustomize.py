"""Kustomize as it can be had: the program itself, the one that `scripts/setup kustomize` built, or the one inside kubectl."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace.embed.jars import cache_folder


def build(folder: Path) -> list[dict[str, Any]]:
    """The manifests of an overlay; the test says so where no kustomize can be had."""
    ran = subprocess.run([*_command(), str(folder)], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return list(yaml.load_all(ran.stdout, yaml.CSafeLoader))


def _command() -> tuple[str, ...]:
    ours = cache_folder() / "bin" / "kustomize"
    alone = shutil.which("kustomize") or (str(ours) if ours.is_file() else None)
    if alone:
        return alone, "build"
    if shutil.which("kubectl"):
        return "kubectl", "kustomize"
    pytest.skip("There is no kustomize: install kubectl, or Go and run scripts/setup kustomize.")
