"""Find the machine's Java: JAVA_HOME, then PATH, then the usual places; refuse what Spark and Kafka do not run on.

`python -m millrace.embed.java` prints the Java home, or the remedy with exit code 1."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from millrace.embed.errors import JavaMissing

SUPPORTED_MAJORS = (17, 21)
USUAL_PLACES = (Path("/usr/lib/jvm"), Path("/opt/java"), Path("/Library/Java/JavaVirtualMachines"))
REMEDY = (
    "Install one of them (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; Fedora: dnf install "
    "java-21-openjdk-headless; macOS: brew install openjdk@21) or point JAVA_HOME at it."
)

_RELEASE_VERSION = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
_PRINTED_VERSION = re.compile(r'version "(\d+)')


@dataclass(frozen=True, slots=True)
class Java:
    """One Java installation that Spark and Kafka run on."""

    home: Path
    major: int

    def __str__(self) -> str:
        return f"Java {self.major} at {self.home}"

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str] = os.environ, places: tuple[Path, ...] = USUAL_PLACES) -> Java:
    """The first supported Java, in order of precedence; raises JavaMissing with what was seen instead."""
    seen: list[str] = []
    for home in dict.fromkeys(_candidate_homes(environ, places)):
        major = _major_version(home)
        if major in SUPPORTED_MAJORS:
            return Java(home, major)
        seen.append(f"{home} is Java {major}" if major else f"{home} holds no working Java")
    wanted = " or ".join(map(str, SUPPORTED_MAJORS))
    raise JavaMissing(f"Java {wanted} is needed, found {'; '.join(seen) or 'none'}.", remedy=REMEDY)


def _candidate_homes(environ: Mapping[str, str], places: tuple[Path, ...]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    for place in places:
        for child in sorted(place.iterdir()) if place.is_dir() else ():
            bundle = child / "Contents" / "Home"
            yield (bundle if bundle.is_dir() else child).resolve()


def _major_version(home: Path) -> int | None:
    """From the release file, which costs nothing, else by asking the program itself."""
    executable = home / "bin" / "java"
    if not os.access(executable, os.X_OK):
        return None
    release = home / "release"
    if release.is_file() and (match := _RELEASE_VERSION.search(release.read_text(errors="replace"))):
        return int(match[1])
    try:
        asked = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _PRINTED_VERSION.search(asked.stderr)
    return int(match[1]) if match else None


if __name__ == "__main__":
    try:
        print(find_java().home)
    except JavaMissing as missing:
        sys.exit(str(missing))
