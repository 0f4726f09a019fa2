"""Which Java is taken, and what is said when there is none."""

from pathlib import Path

import pytest

from millrace.embed.errors import JavaMissing
from millrace.embed.java import find_java


def install_java(home: Path, major: int, *, with_release: bool = True) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{major}.0.1\"' >&2\n")
    executable.chmod(0o755)
    if with_release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{major}.0.1"\n')
    return home


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    chosen, other = install_java(tmp_path / "a", 21), install_java(tmp_path / "b", 17)
    java = find_java({"JAVA_HOME": str(chosen), "PATH": str(other / "bin")}, places=())
    assert (java.home, java.major, java.executable) == (chosen, 21, chosen / "bin" / "java")


def test_a_java_on_path_is_found_behind_its_link(tmp_path: Path) -> None:
    home = install_java(tmp_path / "jdk", 17)
    link = tmp_path / "links" / "java"
    link.parent.mkdir()
    link.symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(link.parent)}, places=()).home == home


def test_an_unsupported_java_is_passed_over(tmp_path: Path) -> None:
    too_new, places = install_java(tmp_path / "new", 25), tmp_path / "jvm"
    right = install_java(places / "java-17", 17)
    assert find_java({"JAVA_HOME": str(too_new), "PATH": ""}, places=(places,)).home == right


def test_without_a_release_file_the_program_is_asked(tmp_path: Path) -> None:
    home = install_java(tmp_path / "jdk", 21, with_release=False)
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}, places=()).major == 21


def test_none_found_says_what_was_seen_and_what_to_do(tmp_path: Path) -> None:
    old = install_java(tmp_path / "old", 11)
    with pytest.raises(JavaMissing) as missing:
        find_java({"JAVA_HOME": str(old), "PATH": ""}, places=(tmp_path / "nowhere",))
    assert f"{old} is Java 11" in str(missing.value)
    assert "apt-get install openjdk-17-jre-headless" in str(missing.value)
