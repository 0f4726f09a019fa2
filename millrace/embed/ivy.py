"""Run the Ivy that PySpark ships: artifacts in, a folder of their jars out.

Ivy knows Maven Central by itself; a machine's own Ivy or Maven settings come first. No address is written here."""

import importlib.util
import os
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from millrace.embed.errors import JarsUnresolved
from millrace.embed.java import Java
from millrace.embed.maven import Repository, configured_repositories, settings_files

# Long enough for a cold cache on a slow line; a hung mirror must still end in an error.
RESOLVE_SECONDS = 600.0

_PROBLEM_MARKS = ("not found", "FAILED", "Server access error", "problem while downloading", "Exception")


@dataclass(frozen=True, slots=True)
class Artifact:
    """One Maven coordinate, with or without what it depends on."""

    group: str
    name: str
    version: str
    transitive: bool = False

    def __str__(self) -> str:
        return f"{self.group}:{self.name}:{self.version}{'+' if self.transitive else ''}"


def retrieve(artifacts: Sequence[Artifact], into: Path, ivy_cache: Path, java: Java) -> None:
    """Put the jars of all artifacts into a folder, or raise JarsUnresolved with Ivy's own reason."""
    with tempfile.TemporaryDirectory(prefix="millrace-ivy-") as scratch:
        module = Path(scratch) / "ivy.xml"
        ET.ElementTree(_module_descriptor(artifacts)).write(module)
        settings = _settings_arguments(Path(scratch), os.environ)
        pattern = str(into / "[artifact]-[revision](-[classifier]).[ext]")
        command = [
            *(str(java.executable), *_proxy_properties(os.environ), "-jar", str(_ivy_jar())),
            *("-cache", str(ivy_cache), "-ivy", str(module), *settings),
            *("-confs", "default", "-retrieve", pattern),
        ]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_SECONDS, check=False)
        except subprocess.TimeoutExpired as late:
            raise _unresolved(artifacts, f"no answer within {RESOLVE_SECONDS:.0f} s") from late
    if ran.returncode != 0:
        raise _unresolved(artifacts, _reason(ran.stdout + ran.stderr))


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsUnresolved("PySpark, whose Ivy resolves the jars, is not installed.", remedy="Run make setup.")
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise JarsUnresolved(f"no ivy-*.jar beside {spec.origin}.", remedy="Reinstall pyspark.")
    return found[-1]


def _module_descriptor(artifacts: Sequence[Artifact]) -> ET.Element:
    root = ET.Element("ivy-module", version="2.0")
    ET.SubElement(root, "info", organisation="millrace", module="jars")
    ET.SubElement(ET.SubElement(root, "configurations"), "conf", name="default")
    dependencies = ET.SubElement(root, "dependencies")
    for artifact in artifacts:
        ET.SubElement(
            dependencies,
            "dependency",
            org=artifact.group,
            name=artifact.name,
            rev=artifact.version,
            transitive=str(artifact.transitive).lower(),
            conf="default->default" if artifact.transitive else "default->master",
        )
    return root


def _settings_arguments(scratch: Path, environ: Mapping[str, str]) -> list[str]:
    """MILLRACE_IVY_SETTINGS, else ~/.ivy2/ivysettings.xml, else Maven's settings, else what Ivy does by itself."""
    own = Path(environ.get("HOME", "~")).expanduser() / ".ivy2" / "ivysettings.xml"
    chosen = environ.get("MILLRACE_IVY_SETTINGS") or (str(own) if own.is_file() else None)
    if chosen:
        return ["-settings", chosen]
    repositories = configured_repositories(settings_files(environ), environ)
    if not repositories:
        return []
    generated = scratch / "ivysettings.xml"
    generated.touch(mode=0o600)
    ET.ElementTree(settings_document(repositories)).write(generated)
    return ["-settings", str(generated)]


def settings_document(repositories: Sequence[Repository]) -> ET.Element:
    """Ivy settings that ask the given repositories in order."""
    root = ET.Element("ivysettings")
    ET.SubElement(root, "settings", defaultResolver="configured")
    secured = [repository for repository in repositories if repository.username is not None]
    credentials = ET.SubElement(root, "credentials") if secured else None
    for repository in secured:
        assert credentials is not None
        ET.SubElement(
            credentials,
            "credentials",
            host=urlsplit(repository.url).hostname or "",
            username=repository.username or "",
            passwd=repository.password or "",
        )
    chain = ET.SubElement(ET.SubElement(root, "resolvers"), "chain", name="configured", returnFirst="true")
    for repository in repositories:
        ET.SubElement(chain, "ibiblio", name=repository.id, m2compatible="true", root=repository.url)
    return root


def _proxy_properties(environ: Mapping[str, str]) -> list[str]:
    """Java ignores the proxy variables that every other program of the machine obeys."""
    properties: list[str] = []
    for scheme in ("http", "https"):
        address = environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY")
        parts = urlsplit(address) if address else None
        if parts and parts.hostname:
            properties += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={parts.port or 80}"]
    direct = environ.get("no_proxy") or environ.get("NO_PROXY")
    if properties and direct:
        hosts = [f"*{host}" if host.startswith(".") else host for host in direct.replace(" ", "").split(",") if host]
        properties.append(f"-Dhttp.nonProxyHosts={'|'.join(hosts)}")
    return properties


def _reason(output: str) -> str:
    telling = [line.strip() for line in output.splitlines() if any(mark in line for mark in _PROBLEM_MARKS)]
    return "; ".join(dict.fromkeys(telling[:6])) or output.strip()[-400:]


def _unresolved(artifacts: Sequence[Artifact], reason: str) -> JarsUnresolved:
    remedy = (
        "Check the network, or name a Maven repository that has them: a mirror of central in ~/.m2/settings.xml, "
        "or an Ivy settings file in MILLRACE_IVY_SETTINGS."
    )
    return JarsUnresolved(f"cannot resolve {', '.join(map(str, artifacts))}: {reason}.", remedy=remedy)
