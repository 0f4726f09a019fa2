"""docs/tutorial.md as a new user would follow it: command by command, with the outputs that it shows."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.platform import RunningPlatform

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
ANY = "…"
IMPORT_ID = re.compile(r"\bimp_[0-9a-z]{26}\b")


@dataclass(frozen=True)
class TutorialStep:
    """A command, and the lines that it is said to print."""

    command: str
    shown: list[str]


def steps(page: str) -> Iterator[TutorialStep]:
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.M | re.S):
        lines = block.splitlines()
        while lines:
            command = lines.pop(0).removeprefix("$ ")
            heredoc = re.search(r"<<'?(\w+)'?$", command)
            while heredoc and not command.endswith(f"\n{heredoc[1]}"):
                command += f"\n{lines.pop(0)}"
            shown: list[str] = []
            while lines and not lines[0].startswith("$ "):
                shown.append(lines.pop(0))
            yield TutorialStep(command, shown)


def is_shown(said: list[str], shown: list[str]) -> bool:
    """A line `…` stands for any lines, `…` in a line for any text."""
    pattern = "".join(r"(?:.*\n)*?" if line == ANY else f"{_line(line)}\n" for line in shown)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in said)) is not None


def _line(line: str) -> str:
    return ".*".join(map(re.escape, line.split(ANY)))


def test_the_tutorial_is_true(platform: RunningPlatform, tmp_path: Path) -> None:
    tools, folder = tmp_path / "bin", tmp_path / "work"
    for made in (tools, folder):
        made.mkdir()
    (tools / "millrace").write_text(f'#!/bin/sh\nexec {sys.executable} -m millrace.cli.main "$@"\n')
    (tools / "millrace").chmod(0o755)
    exports = platform.home.root / "exports"
    exports.mkdir(exist_ok=True)
    environ = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "MILLRACE_HOME": str(platform.home.root),
        "MILLRACE_FILES_ROOT": str(exports),
    }
    found, last_import = list(steps(PAGE.read_text())), ""
    assert len(found) > 15
    wrong: list[str] = []
    for step in found:
        command = re.sub(r"\bIMPORT\b", last_import, step.command)
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        if ran.returncode or not is_shown(ran.stdout.splitlines(), step.shown):
            shown = "\n".join(step.shown)
            wrong.append(f"$ {command}\n{ran.stdout}(exit code {ran.returncode}) instead of\n{shown}")
        if command.startswith("millrace import"):
            last_import = IMPORT_ID.findall(ran.stdout)[-1]
    assert not wrong, "\n\n".join(wrong)
