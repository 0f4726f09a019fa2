"""The table of commands agrees with the modules it names, and help loads nothing that takes long."""

import subprocess
import sys
from importlib import import_module

import pytest
from typer.core import TyperGroup
from typer.main import get_command, get_group

from millrace.cli.main import TABLE, app

SLOW = (
    "httpx2",
    "websockets",
    "rich",
    "pyarrow",
    "numpy",
    "pyspark",
    "yaml",
    "millrace.api",
    "millrace.k8s",
    "millrace.embed.up",
)


def loaded(name: str) -> TyperGroup:
    group = get_command(app)
    return group.load(name)  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("name", TABLE)
def test_the_first_line_of_help_is_the_one_of_the_table(name: str) -> None:
    assert (loaded(name).help or "").partition("\n\n")[0] == TABLE[name].help


@pytest.mark.parametrize("module", sorted({entry.module for entry in TABLE.values()}))
def test_every_command_of_a_module_is_in_the_table(module: str) -> None:
    listed = {name for name, entry in TABLE.items() if entry.module == module}
    group = get_group(import_module(f"millrace.cli.{module}").app)
    assert listed == set(group.commands) or len(listed) == 1, "one group, or exactly these commands"


def test_help_loads_nothing_that_takes_long() -> None:
    script = f"""
import sys
from contextlib import suppress
from millrace.cli.main import TABLE, app
for line in ([], *([name] for name in TABLE)):
    with suppress(SystemExit):
        app([*line, "--help"])
    print(line, [name for name in {SLOW} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) == len(TABLE) + 1
    assert [line for line in lines if not line.endswith(" []")] == []
