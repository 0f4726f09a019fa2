"""`k8s render` for 1,000 tenants, every manifest valid; and 10,000 fuzzed agreements, none of which gets more through."""

import json
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from bench.figure import Figure, at_most
from millrace.k8s.render import render
from millrace.k8s.yaml_text import to_yaml
from millrace.model.errors import Invalid
from millrace.settings import KubernetesSettings
from tests.support.kube_agreements import agreements
from tests.support.kube_rules import rule_problems
from tests.support.kube_schemas import NEWEST, OLDEST, schema_problems

TENANTS, FUZZED = 1_000, 10_000
MANIFESTS_OF_A_TENANT = 7


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-k8s-") as folder:
        source, out = Path(folder, "agreements.json"), Path(folder, "out")
        source.write_text(json.dumps([_agreement(number) for number in range(TENANTS)]))
        begun = time.perf_counter()
        command = (sys.executable, "-m", "millrace.cli.main", "k8s", "render", "-f", str(source), "-o", str(out))
        subprocess.run(command, check=True, timeout=600)
        seconds = time.perf_counter() - begun
        tenants = [_read(file) for file in sorted(out.glob("millrace-tenant-*.yaml"))]
    count = sum(map(len, tenants))
    if len(tenants) != TENANTS or count < MANIFESTS_OF_A_TENANT * TENANTS:
        raise RuntimeError(f"{len(tenants)} tenants with {count} manifests were rendered")
    invalid = sum(bool(_problems(manifests)) for manifests in tenants)
    return [
        at_most("k8s_render", seconds, "s", 10, f"{TENANTS:,} tenants, {count:,} manifests"),
        at_most("k8s_render_invalid", invalid, "tenants", 0, f"against the schemas of {OLDEST} and {NEWEST}"),
        at_most("k8s_fuzz", _fuzzed(), f"of {FUZZED:,}", 0, "invalid, changed in YAML, or in another's namespace"),
    ]  # fmt: skip


def _agreement(number: int) -> dict[str, Any]:
    """Batches and streams by turns, some of them scaled."""
    app: dict[str, Any] = {"image": f"registry.example/apps/tenant:{number}", "env": {"BATCH": str(number)}}
    if number % 2:
        app["mode"] = "stream"
    if number % 4 == 1:
        app["autoscale"] = {"min": 1, "max": 4}
    return {
        "client": f"Tenant_{number}",
        **({} if number % 2 else {"schedule": f"{number % 60} * * * *"}),
        "data_retention_period_days": "7",
        "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "128Mi"}},
        "app": app,
    }


def _read(file: Path) -> list[Any]:
    return list(yaml.load_all(file.read_text(), yaml.CSafeLoader))


def _problems(manifests: list[Any]) -> list[str]:
    shapes = [wrong for one in manifests for version in (OLDEST, NEWEST) for wrong in schema_problems(one, version)]
    return shapes + rule_problems(manifests)


def _fuzzed() -> int:
    """How many agreements became something that is not valid, not theirs or not what was meant."""
    settings, through, owners = KubernetesSettings(app_image="registry.example/{tenant}:1"), 0, dict[str, str]()
    for agreement in islice(agreements(), FUZZED):
        try:
            manifests = render(agreement, settings)
        except Invalid:
            continue
        spaces = {one["metadata"].get("namespace", one["metadata"]["name"]) for one in manifests}
        foreign = any(owners.setdefault(space, agreement.tenant) != agreement.tenant for space in spaces)
        reread = list(yaml.load_all(to_yaml(manifests), yaml.CSafeLoader))
        through += bool(_problems(manifests)) or reread != manifests or foreign
    return through
