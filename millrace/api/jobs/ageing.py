"""Rows in sinks elsewhere that are older than was agreed: once a day their couriers are asked to let them go.

Asked like for a truncation, up to the version of that day: what comes late and is as old is not taken either."""

import os
from datetime import timedelta
from pathlib import Path

import orjson

from millrace.model.names import Home
from millrace.model.sinks import AGED_BY_US
from millrace.model.table import Definition

DAY_US = timedelta(days=1) // timedelta(microseconds=1)


def ask_to_let_go(home: Home, definition: Definition, kept_from: int) -> bool:
    """Whether there was something new to ask for."""
    if not any(target.kind in AGED_BY_US for target in definition.table.targets):
        return False
    version = kept_from - kept_from % DAY_US
    known = home.aged(definition.tenant, definition.table.name)
    if _asked(known) >= version:
        return False
    name = f"age-{definition.tenant}.{definition.table.name}.json"
    home.ends.mkdir(parents=True, exist_ok=True)
    unfinished = home.ends / f".{name}.{os.getpid()}"
    unfinished.write_bytes(orjson.dumps({"definition": definition.fingerprint, "age": version}))
    unfinished.replace(home.ends / name)
    known.parent.mkdir(parents=True, exist_ok=True)
    known.write_text(str(version))
    return True


def _asked(known: Path) -> int:
    try:
        return int(known.read_text())
    except (FileNotFoundError, ValueError):
        return 0
