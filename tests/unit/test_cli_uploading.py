"""Whatever goes wrong while a file is sent, its track ends with a sentence: nobody waits for it for ever."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.cli.tracks import Track
from millrace.cli.uploading import FileUploads
from millrace.client import Millrace, Submission
from tests.support.fake_platform import TOKEN, FakePlatform, fake_platform


@pytest.fixture
def fake() -> Iterator[FakePlatform]:
    with fake_platform() as platform:
        yield platform


@pytest.fixture
def platform(fake: FakePlatform) -> Iterator[Millrace]:
    with Millrace(fake.url, TOKEN) as connection:
        yield connection


def track(path: Path | None) -> Track:
    return Track("-" if path is None else path.name, path, "acme", "readings")


def written(path: Path, rows: int) -> Path:
    path.write_bytes(b"1,a\n" * rows)
    return path


def message_of(track: Track) -> str:
    assert track.delivered.wait(20), "the track is waited for"
    assert track.failure is not None
    return str(track.failure)


def test_closed_standard_input_is_said(platform: Millrace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    stdin = track(None)
    FileUploads(platform, Submission("acme", "readings"), [stdin]).start()
    assert "Standard input is closed." in message_of(stdin)


def test_a_file_that_cannot_be_sent_does_not_keep_the_next_one(platform: Millrace, tmp_path: Path) -> None:
    tracks = [track(written(tmp_path / name, 1)) for name in ("one.csv", "two.csv")]
    FileUploads(platform, Submission("acme", "readings", idempotency_key="é"), tracks).start()
    for each in tracks:
        assert f"{each.name} could not be sent: UnicodeEncodeError" in message_of(each)
        assert each.is_over


class Unlucky(Track):
    def progress(self, sent: int) -> None:
        raise ValueError("no luck")


def test_the_import_of_a_body_that_nobody_will_send_is_cancelled(
    fake: FakePlatform, platform: Millrace, tmp_path: Path
) -> None:
    large = written(tmp_path / "large.csv", 600_000)
    unlucky = Unlucky(large.name, large, "acme", "readings")
    FileUploads(platform, Submission("acme", "readings"), [unlucky]).start()
    assert "large.csv could not be sent: ValueError: no luck" in message_of(unlucky)
    assert ("POST", "/v1/imports/imp_1/cancel") in fake.requests
