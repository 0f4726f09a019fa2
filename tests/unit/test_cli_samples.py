"""The demo's files: the rows that are said to be bad are, the others are not, and the same bytes come out every time."""

import csv
import errno
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millrace.cli import demo
from millrace.cli.child import ChildPlatform
from millrace.cli.main import app
from millrace.cli.samples import Sample, review_sample, speed_sample
from tests.support.fake_platform import TOKEN, fake_platform

ROWS = 21_000
MAX_BYTES = {"analytics": 50 << 20, "product_reviews": 20 << 20}
INTS = {"analytics": range(2, 8), "product_reviews": range(7, 10)}
KEYS = {"analytics": (0, 1, 7), "product_reviews": (3, 2, 1)}
FLOATS = {"analytics": range(9, 11), "product_reviews": range(0)}


@pytest.fixture(scope="module", params=[speed_sample, review_sample])
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    made: Sample = request.param(tmp_path_factory.mktemp("samples"), ROWS)
    return made


def is_good(cells: list[str], table: str, width: int) -> bool:
    if len(cells) != width or not all(cells):
        return False
    try:
        [float(cells[at]) for at in FLOATS[table]]
        return all(-(2**31) <= int(cells[at]) < 2**31 for at in INTS[table])
    except ValueError:
        return False


def test_exactly_the_rows_said_to_be_bad_are_bad_and_the_keys_are_counted(sample: Sample) -> None:
    keys = set()
    for file in sample.files:
        with file.path.open(newline="", encoding="utf-8") as text:
            reader = csv.reader(text)
            width = len(next(reader))
            bad, rows = [], 0
            for rows, cells in enumerate(reader, start=1):
                if is_good(cells, sample.table, width):
                    keys.add(tuple(cells[at] for at in KEYS[sample.table]))
                else:
                    bad.append(rows)
        assert (rows, tuple(bad)) == (file.rows, file.bad)
    assert len(keys) == sample.answer[0]


def test_the_demo_keeps_to_the_sizes_its_tenants_declare(tmp_path: Path) -> None:
    for made, least in ((speed_sample(tmp_path), 1_000_000), (review_sample(tmp_path), 100_000)):
        assert sum(file.rows for file in made.files) >= least
        assert all(file.path.stat().st_size <= MAX_BYTES[made.table] for file in made.files)


def test_a_demo_whose_files_cannot_be_made_does_not_say_that_all_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(folder: Path) -> Sample:
        raise OSError(errno.ENOSPC, "No space left on device")

    @contextmanager
    def no_platform(home: Path, environ: Mapping[str, str]) -> Iterator[ChildPlatform]:
        (home / "client.json").write_text(json.dumps({"url": fake.url, "token": TOKEN}))
        yield ChildPlatform(home, fake.url, None, 0.0)  # type: ignore[arg-type]

    monkeypatch.setattr("millrace.cli.samples.speed_sample", no_room)
    monkeypatch.setattr(demo, "running_platform", no_platform)
    with fake_platform() as fake, pytest.raises(OSError, match="No space left"):
        CliRunner().invoke(app, ["demo", "--once", "--debug", "--home", str(tmp_path)], catch_exceptions=False)


def test_the_same_bytes_come_out_every_time(sample: Sample, tmp_path: Path) -> None:
    again = speed_sample(tmp_path, ROWS) if sample.table == "analytics" else review_sample(tmp_path, ROWS)
    assert [digest(file.path) for file in again.files] == [digest(file.path) for file in sample.files]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
