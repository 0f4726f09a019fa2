"""A control store of an older Millrace is refused in words, before anything is read wrongly."""

import sqlite3
from pathlib import Path

import pytest

from millrace.model.errors import Corrupt
from millrace.store.engine import ControlStore


def test_a_store_that_lacks_columns_is_refused_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "control.db"
    ControlStore(f"sqlite:///{path}").close()
    ControlStore(f"sqlite:///{path}").close()
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE tables DROP COLUMN floor")
        connection.execute("ALTER TABLE imports DROP COLUMN publish")
    with pytest.raises(
        Corrupt, match=r"imports lacks publish.*tables lacks floor|tables lacks floor.*imports lacks publish"
    ):
        ControlStore(f"sqlite:///{path}")
