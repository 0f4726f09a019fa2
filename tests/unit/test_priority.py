"""A process that yields: by its own priority, and by that of its session where Linux weighs sessions."""

import subprocess
import sys
from pathlib import Path

from millrace.priority import AUTOGROUP

YIELDING = f"""
import os
from pathlib import Path
from millrace.priority import yield_to_others
before = os.nice(0)
yield_to_others(3)
group = Path({AUTOGROUP!r})
print(os.nice(0) - before, group.read_text().split()[-1] if group.exists() else 3)
"""


def test_a_process_yields_and_its_session_with_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", YIELDING], capture_output=True, text=True, timeout=60, start_new_session=True, check=True
    )
    assert done.stdout.split() == ["3", "3"]


def test_yielding_needs_no_sessions_that_are_weighed() -> None:
    without = YIELDING.replace("yield_to_others(3)", "millrace.priority.AUTOGROUP = '/nowhere'; yield_to_others(3)")
    script = "import millrace.priority\n" + without.replace(repr(AUTOGROUP), repr("/nowhere"))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=Path.cwd(), check=True
    )
    assert done.stdout.split() == ["3", "3"]
