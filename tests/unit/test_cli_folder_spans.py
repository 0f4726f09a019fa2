"""`import --span` and `--span-per-folder`: which span each file joins, when spans begin and end, and what an error leaves."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer

from millrace.cli.folder_spans import folder_spans
from tests.support.fake_platform import TOKEN, FakePlatform, Refuse, fake_platform

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SPANS = "/v1/tenants/acme/spans"
ENDED = {
    "tenant": "acme", "name": "night", "parent": None, "state": "ended", "imports": 1, "open_members": 0,
    "rows": {"read": 3, "accepted": 3, "rejected": 0, "ignored": 0}, "begun_at": "2026-01-01T00:00:00Z",
    "ended_at": "2026-01-01T00:00:01Z", "seconds": 1.0, "lease_seconds": 60, "expires_at": None, "error": None,
}  # fmt: skip


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakePlatform]:
    with fake_platform() as platform:
        platform.answers["GET", "/v1/health"] = {"status": "ok", "parts": {"kafka": "ok"}}
        (tmp_path / "client.json").write_text(json.dumps({"url": platform.url, "token": TOKEN}))
        yield platform


@pytest.fixture
def run(fake: FakePlatform, tmp_path: Path) -> Run:
    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, "-m", "millrace.cli.main", "import", "acme/readings", *words]
        environ = {"MILLRACE_HOME": str(tmp_path), "PATH": "", "HOME": str(tmp_path)}
        return subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)

    return run


def knows(fake: FakePlatform, *names: str) -> None:
    for name in names:
        for verb, route in (("POST", ""), ("POST", "/end"), ("POST", "/abort"), ("GET", "")):
            fake.answers[verb, f"{SPANS}/{name}{route}"] = {**ENDED, "name": name}


def files(tmp_path: Path, *names: str, size: int = 1) -> list[str]:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"1,a\n" * size)
    return list(names)


def steps(fake: FakePlatform) -> list[str]:
    """What was asked, in order, in short: begin X, end X, file into X."""
    short = []
    for method, url in fake.requests:
        path, _, query = url.partition("?")
        if path.startswith(SPANS) and method == "POST":
            name, _, verb = path.removeprefix(SPANS + "/").rpartition("/")
            short.append(f"{verb} {name}" if verb in ("end", "abort") else f"begin {path.removeprefix(SPANS + '/')}")
        elif path.endswith(("/imports", "/uploads")):
            short.append("file " + dict(part.split("=") for part in query.split("&"))["span"].replace("%2F", "/"))
    return short


@pytest.mark.parametrize(
    ("paths", "below", "expected"),
    [
        (["/d/2026/a.csv"], None, ["2026"]),
        (["/d/2026/a.csv", "/d/2026/b.csv"], "night", ["night/2026", "night/2026"]),
        (["/d/2026/jan/a.csv", "/d/2026/feb/b.csv"], None, ["2026/jan", "2026/feb"]),
        (["/d/2026/a.csv", "/d/2026/jan/1/b.csv"], "x/y", ["x/y/2026", "x/y/2026/jan/1"]),
        (["/d/2026/../2027/a.csv", "/d/2027/b.csv"], None, ["2027", "2027"]),
    ],
)
def test_a_folder_names_its_span(paths: list[str], below: str | None, expected: list[str]) -> None:
    assert folder_spans([Path(path) for path in paths], below) == expected


@pytest.mark.parametrize("paths", [["/a.csv"], ["/a/x.csv", "/b/y.csv"], ["/d/with space/a.csv"], ["/d/.hidden/a.csv"]])
def test_a_folder_that_cannot_name_a_span_is_refused(paths: list[str]) -> None:
    with pytest.raises(typer.BadParameter):
        folder_spans([Path(path) for path in paths], None)


def test_files_join_the_span_that_is_named(fake: FakePlatform, run: Run, tmp_path: Path) -> None:
    small, large = files(tmp_path, "small.csv"), files(tmp_path, "large.csv", size=600_000)
    done = run(*small, *large, "--span", "night/1")
    assert done.returncode == 0, done.stderr
    assert steps(fake) == ["file night/1", "file night/1"]


def test_each_folder_is_begun_before_its_first_file_and_ended_after_its_last(
    fake: FakePlatform, run: Run, tmp_path: Path
) -> None:
    knows(fake, "in", "in/a", "in/b")
    done = run(*files(tmp_path, "in/a/1.csv", "in/b/2.csv", "in/a/3.csv", "in/4.csv"), "--span-per-folder")
    assert done.returncode == 0, done.stderr
    assert steps(fake) == [
        "begin in", "begin in/a", "file in/a", "begin in/b", "file in/b", "end in/b", "file in/a", "end in/a",
        "file in", "end in",
    ]  # fmt: skip
    assert "span in/a: ended; 1 import; rows: 3 read" in done.stderr


def test_folders_nest_below_the_span_that_is_named_and_that_one_stays_open(
    fake: FakePlatform, run: Run, tmp_path: Path
) -> None:
    knows(fake, "night", "night/in")
    done = run(*files(tmp_path, "in/1.csv"), "--span", "night", "--span-per-folder")
    assert done.returncode == 0, done.stderr
    assert steps(fake) == ["begin night/in", "file night/in", "end night/in"]


def test_below_a_span_that_is_not_there_nothing_is_sent(fake: FakePlatform, run: Run, tmp_path: Path) -> None:
    done = run(*files(tmp_path, "in/1.csv"), "--span", "nowhere", "--span-per-folder")
    assert done.returncode == 1
    assert "nowhere" in done.stderr
    assert steps(fake) == []


def test_a_folder_without_one_of_its_files_is_aborted_and_never_ended(
    fake: FakePlatform, run: Run, tmp_path: Path
) -> None:
    knows(fake, "in", "in/a", "in/b")
    refusal = Refuse(422, {"code": "header", "detail": "The header lacks id.", "remedy": "Add it.", "import": "imp_1"})
    fake.patch_faults = [refusal]
    fake.answers["GET", f"{SPANS}/in"] = {**ENDED, "name": "in", "state": "aborted"}
    big = files(tmp_path, "in/a/1.csv", size=600_000)
    done = run(*big, *files(tmp_path, "in/b/2.csv"), "--span-per-folder")
    assert done.returncode == 1
    asked = steps(fake)
    assert "abort in/a" in asked
    assert "end in/b" in asked
    assert "end in/a" not in asked
    assert "end in" not in asked
    assert any("The header lacks id." in str(body) for body in fake.bodies), "the reason is told"


def test_an_aborted_span_exits_1(fake: FakePlatform, run: Run, tmp_path: Path) -> None:
    knows(fake, "in")
    error = {"code": "failed", "message": "None of the 3 rows was accepted.", "member": "imp_9"}
    fake.answers["GET", f"{SPANS}/in"] = {**ENDED, "name": "in", "state": "aborted", "error": error}
    done = run(*files(tmp_path, "in/1.csv"), "--span-per-folder")
    assert done.returncode == 1
    assert "because of imp_9: None of the 3 rows was accepted." in done.stderr


def test_standard_input_lies_in_no_folder(run: Run) -> None:
    assert run("-", "--span-per-folder").returncode == 2
