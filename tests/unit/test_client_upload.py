"""Uploads through breaks: what arrives is the file, once, whatever the connection does."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.client import FileOptions, Millrace, Problem, Submission, Unreachable
from tests.support.fake_platform import TOKEN, Cut, FakePlatform, Refuse, fake_platform

MIB = 1 << 20
UNREADY = {"code": "unavailable", "detail": "Kafka is away.", "remedy": "Wait."}


@pytest.fixture
def fake() -> Iterator[FakePlatform]:
    with fake_platform() as platform:
        yield platform


@pytest.fixture
def platform(fake: FakePlatform) -> Iterator[Millrace]:
    with Millrace(fake.url, TOKEN) as connection:
        yield connection


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large.csv"
    path.write_bytes(bytes(range(251)) * (5 * MIB // 251))
    return path


SUBMISSION = Submission("acme", "readings", patience=20)


def patches(fake: FakePlatform) -> int:
    return sum(method == "PATCH" for method, _ in fake.requests)


def test_a_small_file_goes_in_one_request_with_what_its_name_tells(
    fake: FakePlatform, platform: Millrace, tmp_path: Path
) -> None:
    path = tmp_path / "some.jsonl.gz"
    path.write_bytes(b"abc")
    document = platform.imports.send_file(path, SUBMISSION)
    assert fake.stored == {document["id"]: bytearray(b"abc")}
    assert fake.queries[document["id"]] == {"format": "jsonl", "compression": "gzip", "file_name": "some.jsonl.gz"}
    assert [method for method, _ in fake.requests] == ["POST"]


def test_what_the_caller_says_wins_over_the_file_name(fake: FakePlatform, platform: Millrace, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"a;b")
    options = FileOptions(format="csv", header=False, delimiter=";")
    document = platform.imports.send_file(path, Submission("acme", "readings", options))
    assert fake.queries[document["id"]] == {
        "format": "csv", "header": "false", "delimiter": ";", "file_name": "rows.jsonl",
    }  # fmt: skip


def test_a_large_file_arrives_whole_and_progress_ends_at_its_length(
    fake: FakePlatform, platform: Millrace, large: Path
) -> None:
    heard: list[int] = []
    document = platform.imports.send_file(large, SUBMISSION, heard.append)
    assert fake.stored[document["id"]] == large.read_bytes()
    assert heard == sorted(heard)
    assert heard[-1] == large.stat().st_size


@pytest.mark.parametrize("keeps", [0, 1, MIB, 3 * MIB - 7])
def test_a_cut_upload_goes_on_where_the_platform_says(
    fake: FakePlatform, platform: Millrace, large: Path, keeps: int
) -> None:
    fake.patch_faults = [Cut(after=3 * MIB, keeps=keeps)]
    document = platform.imports.send_file(large, SUBMISSION)
    assert fake.stored[document["id"]] == large.read_bytes()
    assert patches(fake) == 2


def test_many_cuts_and_refusals_are_one_import(fake: FakePlatform, platform: Millrace, large: Path) -> None:
    fake.refusals = [Refuse(503, UNREADY), Refuse(502, {})]
    fake.patch_faults = [Cut(MIB, 1000), Refuse(503, UNREADY), Cut(2 * MIB, 2 * MIB), Cut(0, 0), Refuse(500, {})]
    document = platform.imports.send_file(large, SUBMISSION)
    assert fake.stored == {document["id"]: large.read_bytes()}


def test_a_refused_body_is_a_problem_with_its_import(fake: FakePlatform, platform: Millrace, large: Path) -> None:
    refusal = {"code": "header", "detail": "The header lacks ONUID.", "remedy": "Add it.", "import": "imp_1"}
    fake.patch_faults = [Refuse(422, refusal)]
    with pytest.raises(Problem) as raised:
        platform.imports.send_file(large, SUBMISSION)
    problem = raised.value
    assert (problem.status, problem.code, problem.detail, problem.remedy, problem.import_id) == (
        422, "header", "The header lacks ONUID.", "Add it.", "imp_1",
    )  # fmt: skip
    assert patches(fake) == 1


def test_an_import_that_ended_meanwhile_is_reported_instead_of_resumed(
    fake: FakePlatform, platform: Millrace, large: Path
) -> None:
    fake.patch_faults = [Cut(MIB, 0)]
    upload = platform.imports.begin_upload(large, SUBMISSION)
    fake.outcome = {"state": "failed", "error": {"code": "expired", "message": "Its lease ran out.", "remedy": ""}}
    assert upload.send()["state"] == "failed"
    assert patches(fake) == 1


def test_a_platform_that_is_away_when_it_has_everything_fails_no_upload(
    fake: FakePlatform, platform: Millrace, large: Path
) -> None:
    upload = platform.imports.begin_upload(large, SUBMISSION)
    fake.refusals = [Refuse(503, UNREADY), Refuse(502, {})]
    document = upload.send()
    assert fake.stored[document["id"]] == large.read_bytes()
    assert patches(fake) == 1


def test_without_progress_an_upload_is_given_up(fake: FakePlatform, platform: Millrace, large: Path) -> None:
    fake.patch_faults = [Cut(0, 0)] * 50
    with pytest.raises(Unreachable):
        platform.imports.send_file(large, Submission("acme", "readings", patience=0.3))


def test_a_repeated_key_finds_the_file_already_there(fake: FakePlatform, platform: Millrace, large: Path) -> None:
    once = Submission("acme", "readings", idempotency_key="nightly-1")
    first, second = platform.imports.send_file(large, once), platform.imports.send_file(large, once)
    assert first["id"] == second["id"]
    assert patches(fake) == 1


def test_a_stream_is_one_request_of_unknown_length(fake: FakePlatform, platform: Millrace) -> None:
    body, heard = b"x" * (2 * MIB + 5), list[int]()
    document = platform.imports.send_stream(io.BytesIO(body), SUBMISSION, heard.append)
    assert fake.stored[document["id"]] == body
    assert heard[-1] == len(body)


def test_a_platform_that_is_away_is_unreachable(large: Path) -> None:
    with fake_platform() as gone:
        url = gone.url
    with Millrace(url, TOKEN) as connection, pytest.raises(Unreachable) as raised:
        connection.imports.send_file(large, Submission("acme", "readings", patience=0.2))
    assert url in str(raised.value)
    assert "millrace up" in raised.value.remedy
