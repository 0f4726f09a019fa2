"""The bill of materials names what the platform really consists of, in the shape that CycloneDX 1.6 prescribes."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millrace.embed.jars import read_pins

ROOT = Path(__file__).parents[2]


def written(target: Path) -> Any:
    command = [sys.executable, str(ROOT / "scripts" / "sbom.py"), str(target)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return json.loads(target.read_text())


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return written(tmp_path_factory.mktemp("sbom") / "build" / "sbom.json")


def locked() -> set[tuple[str, str]]:
    """A package may have one version for each version of Python."""
    text = (ROOT / "requirements.lock").read_text()
    return set(re.findall(r"^([a-z0-9-]+)(?:\[.*?\])?==([^\s\\;]+)", text, re.MULTILINE))


def test_it_has_the_shape_of_cyclonedx(bill: Any) -> None:
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    every = [bill["metadata"]["component"], *bill["components"]]
    assert all(one["type"] in ("application", "library") and one["name"] and one["version"] for one in every)
    assert all(re.fullmatch(r"pkg:(pypi|maven|generic)/[^@\s]+@[^@\s]+", one["purl"]) for one in every)
    references = [one["bom-ref"] for one in every]
    assert len(set(references)) == len(references)
    for edge in bill["dependencies"]:
        assert {edge["ref"], *edge["dependsOn"]} <= set(references)
    for licence in (licence for one in every for licence in one.get("licenses", ())):
        assert set(licence) in ({"expression"}, {"license"})


def test_it_names_every_package_that_the_platform_imports_in_the_locked_version(bill: Any) -> None:
    packages = {one["name"]: one["version"] for one in bill["components"] if one["purl"].startswith("pkg:pypi/")}
    assert packages.items() - locked() == set()
    needed = {"fastapi", "pyspark", "confluent-kafka", "cryptography", "cassandra-driver", "boto3", "starlette"}
    assert needed <= packages.keys()
    assert not {"pytest", "ruff", "mypy", "hypothesis"} & packages.keys(), "no tool of ours is shipped"
    (of_us,) = (one["dependsOn"] for one in bill["dependencies"] if one["ref"].startswith("pkg:pypi/millrace@"))
    assert f"pkg:pypi/fastapi@{packages['fastapi']}" in of_us


def test_it_names_every_jar_with_its_bytes(bill: Any) -> None:
    found = {one["hashes"][0]["content"] for one in bill["components"] if "hashes" in one}
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in found)
    pinned = {digest for jars in read_pins().values() for digest in jars.values()}
    assert pinned <= found
    kafka = next(one for one in bill["components"] if one["name"] == "kafka_2.13")
    assert kafka["purl"].startswith("pkg:maven/org.apache.kafka/kafka_2.13@")
    assert any(one["name"].startswith("spark-core") for one in bill["components"]), "those inside PySpark too"


def test_the_same_installation_gives_the_same_bill(bill: Any, tmp_path: Path) -> None:
    assert written(tmp_path / "again.json") == bill
