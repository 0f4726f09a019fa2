"""Where this machine wants Maven artifacts to come from: its Maven settings in, repositories and credentials out.

Knows mirrors, servers, active profiles' repositories and `${env.X}`; knows no address of its own."""

import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

CENTRAL = "central"

_ENV_REFERENCE = re.compile(r"\$\{env\.([^}]+)\}")


@dataclass(frozen=True, slots=True)
class Repository:
    """One place to resolve from; the password never shows in a repr."""

    id: str
    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)


def settings_files(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Maven's own settings files, most specific first; not all need exist."""
    homes = [Path(environ[name]) / "conf" for name in ("MAVEN_HOME", "M2_HOME") if environ.get(name)]
    user = Path(environ.get("HOME", "~")).expanduser() / ".m2"
    return tuple(folder / "settings.xml" for folder in (user, *homes, Path("/etc/maven")))


def configured_repositories(files: tuple[Path, ...], environ: Mapping[str, str] = os.environ) -> tuple[Repository, ...]:
    """What replaces or precedes Maven Central here; empty when the machine has no say in it."""
    documents = [_without_namespaces(ET.parse(file).getroot()) for file in files if file.is_file()]
    found: dict[str, Repository] = {}
    for document in documents:
        for repository in (*_mirrors_of_central(document, environ), *_active_repositories(document, environ)):
            found.setdefault(repository.id, repository)
    return tuple(_with_credentials(repository, documents, environ) for repository in found.values())


def _mirrors_of_central(document: ET.Element, environ: Mapping[str, str]) -> Iterator[Repository]:
    for mirror in document.iterfind("mirrors/mirror"):
        if _covers_central(_text(mirror, "mirrorOf", environ)):
            yield Repository(_text(mirror, "id", environ), _text(mirror, "url", environ))


def _covers_central(mirror_of: str) -> bool:
    patterns = [pattern.strip() for pattern in mirror_of.split(",")]
    return f"!{CENTRAL}" not in patterns and any(p in (CENTRAL, "*", "external:*") for p in patterns)


def _active_repositories(document: ET.Element, environ: Mapping[str, str]) -> Iterator[Repository]:
    active = {(element.text or "").strip() for element in document.iterfind("activeProfiles/activeProfile")}
    for profile in document.iterfind("profiles/profile"):
        by_default = _text(profile, "activation/activeByDefault", environ) == "true"
        if by_default or _text(profile, "id", environ) in active:
            for repository in profile.iterfind("repositories/repository"):
                yield Repository(_text(repository, "id", environ), _text(repository, "url", environ))


def _with_credentials(repository: Repository, documents: list[ET.Element], environ: Mapping[str, str]) -> Repository:
    for document in documents:
        for server in document.iterfind("servers/server"):
            if _text(server, "id", environ) == repository.id:
                username, password = _text(server, "username", environ), _text(server, "password", environ)
                return Repository(repository.id, repository.url, username, password)
    return repository


def _text(element: ET.Element, path: str, environ: Mapping[str, str]) -> str:
    raw = (element.findtext(path) or "").strip()
    return _ENV_REFERENCE.sub(lambda reference: environ.get(reference[1], ""), raw)


def _without_namespaces(root: ET.Element) -> ET.Element:
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root
