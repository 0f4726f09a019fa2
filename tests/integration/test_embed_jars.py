"""The Ivy inside PySpark against a Maven repository on disk, named by Maven settings as a company's mirror would be."""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from millrace.embed.errors import JarsUnresolved
from millrace.embed.ivy import Artifact, retrieve
from millrace.embed.jars import JAR_SETS, cache_folder, jar_folder, jar_folders, read_pins
from millrace.embed.java import find_java

LIBRARY = Artifact("test.group", "library", "1.2", transitive=True)
NEEDED = Artifact("test.group", "needed", "0.1")


def publish(repository: Path, artifact: Artifact, needs: Artifact | None = None) -> None:
    folder = repository / artifact.group.replace(".", "/") / artifact.name / artifact.version
    folder.mkdir(parents=True)
    stem = f"{artifact.name}-{artifact.version}"
    with zipfile.ZipFile(folder / f"{stem}.jar", "w") as jar:
        jar.writestr("name.txt", stem)
    dependency = f"<dependency>{coordinates(needs)}</dependency>" if needs else ""
    head = f"<modelVersion>4.0.0</modelVersion>{coordinates(artifact)}"
    (folder / f"{stem}.pom").write_text(f"<project>{head}<dependencies>{dependency}</dependencies></project>")


def coordinates(artifact: Artifact) -> str:
    parts = {"groupId": artifact.group, "artifactId": artifact.name, "version": artifact.version}
    return "".join(f"<{tag}>{text}</{tag}>" for tag, text in parts.items())


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Maven repository that replaces central for this test."""
    home, folder = tmp_path / "home", tmp_path / "repository"
    (home / ".m2").mkdir(parents=True)
    where = f"<id>disk</id><mirrorOf>*</mirrorOf><url>{folder.as_uri()}</url>"
    (home / ".m2" / "settings.xml").write_text(f"<settings><mirrors><mirror>{where}</mirror></mirrors></settings>")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MILLRACE_IVY_SETTINGS", raising=False)
    return folder


def test_a_library_comes_with_what_it_needs_or_alone(repository: Path, tmp_path: Path) -> None:
    publish(repository, LIBRARY, needs=NEEDED)
    publish(repository, NEEDED)
    alone = Artifact(LIBRARY.group, LIBRARY.name, LIBRARY.version)
    retrieve([LIBRARY], tmp_path / "with", tmp_path / "ivy", find_java())
    retrieve([alone], tmp_path / "without", tmp_path / "ivy", find_java())
    assert sorted(jar.name for jar in (tmp_path / "with").iterdir()) == ["library-1.2.jar", "needed-0.1.jar"]
    assert [jar.name for jar in (tmp_path / "without").iterdir()] == ["library-1.2.jar"]


def test_what_cannot_be_found_is_named_with_the_remedy(repository: Path) -> None:
    repository.mkdir()
    with pytest.raises(JarsUnresolved) as unresolved:
        jar_folder("spark")
    assert "spark-sql-kafka-0-10_2.13" in str(unresolved.value)
    assert "not found" in str(unresolved.value)
    assert "~/.m2/settings.xml" in str(unresolved.value)
    assert not list((cache_folder() / "jars").glob("*spark*")), "a failed resolution leaves nothing that looks finished"


def test_an_unknown_set_lists_those_there_are() -> None:
    with pytest.raises(JarsUnresolved, match=", ".join(sorted(JAR_SETS))):
        jar_folder("flink")


def pinned(repository: Path) -> Path:
    """The set `spark` in the repository, with other bytes than the real one, and pins that fit them."""
    for artifact in JAR_SETS["spark"]:
        publish(repository, artifact)
    pins = repository.with_name("pins")
    jars = sorted(repository.rglob("*.jar"))
    pins.write_text("".join(f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  spark/{jar.name}\n" for jar in jars))
    return pins


def test_jars_with_other_bytes_than_the_pinned_ones_are_refused(repository: Path) -> None:
    pinned(repository)
    command = [sys.executable, "-m", "millrace.embed.jars", "spark"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode != 0
    assert "spark-sql-kafka-0-10_2.13" in ran.stderr
    assert "jars.sha256" in ran.stderr
    assert not list((cache_folder() / "jars").glob("*spark*")), "nothing that looks finished is left"


def test_a_jar_that_nobody_pinned_is_refused(repository: Path) -> None:
    pins = pinned(repository)
    pins.write_text("".join(pins.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(JarsUnresolved, match="not the bytes"):
        jar_folder("spark", JAR_SETS, pins)


def test_every_jar_of_the_platform_is_pinned() -> None:
    for name, artifacts in JAR_SETS.items():
        assert {f"{one.name}-{one.version}.jar" for one in artifacts} <= read_pins()[name].keys()


def test_two_processes_at_once_get_the_same_complete_folder(repository: Path) -> None:
    code = "import sys, pathlib, millrace.embed.jars as j; print(j.jar_folder('spark', pins=pathlib.Path(sys.argv[1])))"
    command = [sys.executable, "-c", code, str(pinned(repository))]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [each.communicate(timeout=60)[0].strip() for each in both]
    assert [each.returncode for each in both] == [0, 0]
    assert printed[0] == printed[1]
    names = {f"{artifact.name}-{artifact.version}.jar" for artifact in JAR_SETS["spark"]}
    assert {jar.name for jar in Path(printed[0]).iterdir()} == names
    assert [each.name for each in (cache_folder() / "jars").iterdir() if each.is_dir()] == [Path(printed[0]).name]


def test_a_resolved_set_needs_neither_network_nor_java(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = pinned(repository)
    first = jar_folder("spark", JAR_SETS, pins)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    repository.rename(repository.with_name("gone"))
    assert jar_folder("spark", JAR_SETS, pins) == first


def test_sets_are_resolved_together_and_one_that_fails_spoils_no_other(repository: Path, tmp_path: Path) -> None:
    publish(repository, NEEDED)
    publish(repository, LIBRARY, needs=NEEDED)
    sets = {"whole": (LIBRARY,), "part": (NEEDED,), "absent": (Artifact("test.group", "absent", "9"),)}
    pins = tmp_path / "pins"
    jars = sorted(repository.rglob("*.jar"))
    digests = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars}
    lines = [f"{digest}  whole/{name}" for name, digest in digests.items()]
    pins.write_text("\n".join([*lines, f"{digests['needed-0.1.jar']}  part/needed-0.1.jar"]))
    with pytest.raises(JarsUnresolved, match="absent"):
        jar_folders(["absent", "whole", "part"], sets, pins)
    kept = {folder.name.partition("-")[0]: sorted(jar.name for jar in folder.glob("*.jar")) for folder in _resolved()}
    assert kept == {"whole": ["library-1.2.jar", "needed-0.1.jar"], "part": ["needed-0.1.jar"]}


def _resolved() -> list[Path]:
    return [folder for folder in (cache_folder() / "jars").iterdir() if folder.is_dir() and folder.name[0] != "."]
