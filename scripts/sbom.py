"""Writes the software bill of materials of the platform, as CycloneDX JSON: the Python packages that the image installs, and
all jars. `python scripts/sbom.py FILE`. The same installation gives the same file."""

import hashlib
import json
import re
import sys
import uuid
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from millrace.embed.jars import JAR_SETS, jar_folder

ROOT = "millrace"
LONGEST_LICENSE_NAME = 100
_JAR_NAME = re.compile(r"(?P<name>.+?)-(?P<version>\d[\w.+-]*)\.jar")
_POM = re.compile(r"META-INF/maven/(?P<group>[^/]+)/(?P<name>[^/]+)/pom\.properties")
Component = dict[str, Any]


def bill() -> dict[str, Any]:
    packages = installed(ROOT)
    root = package_component(packages.pop(ROOT), "application")
    jars = sorted(jar_components(), key=lambda one: str(one["bom-ref"]))
    components = [package_component(one, "library") for _, one in sorted(packages.items())]
    known = {ROOT: root, **{canonicalize_name(one["name"]): one for one in components}}
    edges = [{"ref": one["bom-ref"], "dependsOn": depends_on(name, known)} for name, one in known.items()]
    content = {"component": root, "components": [*components, *jars], "dependencies": edges}
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": content.pop("component")},
        **content,
    }


def installed(root: str) -> dict[str, Distribution]:
    """The package with all its extras and whatever they need here, by name."""
    found: dict[str, Distribution] = {}
    extras = tuple(distribution(root).metadata.get_all("Provides-Extra") or ())
    waiting = [(root, extras)]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        found[name] = distribution(name)
        waiting += needs(found[name], wanted)
    return found


def needs(package: Distribution, extras: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for text in package.requires or ():
        needed = Requirement(text)
        if needed.marker is not None and not any(needed.marker.evaluate({"extra": one}) for one in ("", *extras)):
            continue
        try:
            distribution(needed.name)
        except PackageNotFoundError:
            # A development extra, which the image does not install either.
            continue
        yield canonicalize_name(needed.name), tuple(sorted(needed.extras))


def depends_on(name: str, known: dict[str, Component]) -> list[str]:
    extras = tuple(distribution(name).metadata.get_all("Provides-Extra") or ())
    return sorted({known[one]["bom-ref"] for one, _ in needs(distribution(name), extras) if one in known})


def package_component(package: Distribution, kind: str) -> Component:
    name, version = canonicalize_name(package.metadata["Name"]), package.version
    purl = f"pkg:pypi/{quote(name)}@{quote(version)}"
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl, **licences(package)}


def licences(package: Distribution) -> dict[str, Any]:
    expression = package.metadata.get("License-Expression")
    if expression:
        return {"licenses": [{"expression": expression}]}
    name = package.metadata.get("License") or ""
    if name and len(name) <= LONGEST_LICENSE_NAME and "\n" not in name:
        return {"licenses": [{"license": {"name": name}}]}
    classified = [one.rpartition(" :: ")[2] for one in package.metadata.get_all("Classifier") or () if "License" in one]
    return {"licenses": [{"license": {"name": one}} for one in classified]} if classified else {}


def jar_components() -> Iterator[Component]:
    """Those that we fetch, and those that PySpark brings. A jar that is in both places is one component."""
    spark = find_spec("pyspark")
    folders = [jar_folder(name) for name in JAR_SETS]
    folders += [Path(spark.origin).parent / "jars"] if spark is not None and spark.origin else []
    found = {}
    for jar in (jar for folder in folders for jar in sorted(folder.glob("*.jar"))):
        component = jar_component(jar)
        found[component["bom-ref"]] = component
    yield from found.values()


def jar_component(jar: Path) -> Component:
    digest = hashlib.sha256(jar.read_bytes()).hexdigest()
    parts = _JAR_NAME.fullmatch(jar.name)
    name, version = (parts["name"], parts["version"]) if parts else (jar.stem, "unknown")
    group = group_of(jar, name)
    purl = (
        f"pkg:maven/{quote(group)}/{quote(name)}@{quote(version)}"
        if group
        else f"pkg:generic/{quote(name)}@{quote(version)}"
    )
    component = {"type": "library", "bom-ref": f"{purl}#{digest[:12]}", "name": name, "version": version, "purl": purl}
    return {**component, **({"group": group} if group else {}), "hashes": [{"alg": "SHA-256", "content": digest}]}


def group_of(jar: Path, name: str) -> str | None:
    """From the record that Maven puts into a jar; one that holds others has several."""
    ours = {one.name: one.group for artifacts in JAR_SETS.values() for one in artifacts}
    with zipfile.ZipFile(jar) as content:
        records = [record for entry in content.namelist() if (record := _POM.fullmatch(entry))]
    return next((record["group"] for record in records if record["name"] == name), ours.get(name))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(bill(), indent=2) + "\n")
    print(f"{target}: {len(json.loads(target.read_text())['components'])} components")
