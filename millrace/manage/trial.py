"""Does a program keep to the contract? A command and files for its `in` in, a list of checks out. No platform is needed.

It runs as whoever asks, with the contract's environment and nothing else of the asker's."""

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from millrace.manage.completion import may_be_finished
from millrace.manage.confinement import PATH
from millrace.manage.importing import table_of
from millrace.model.errors import Invalid

CLIENT = "client"
STOP_SECONDS = 10.0
QUIET_SECONDS = 1.0
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Check:
    """`ok` is None for what is worth knowing and no fault."""

    name: str
    ok: bool | None
    found: str


@dataclass(frozen=True, slots=True)
class Trial:
    """What is tried, where. `tables`: the tenant's, if they are known."""

    command: tuple[str, ...]
    given: Path
    folder: Path
    tables: tuple[str, ...] = ()
    is_stream: bool = False
    seconds: float = 60.0
    env: Mapping[str, str] = field(default_factory=dict)

    def checks(self) -> Iterator[Check]:
        whole = _Place(self, "whole")
        code, took = whole.run()
        yield from whole.about_end(code, took)
        yield from whole.about_files()
        if self.is_stream or code != 0:
            return
        before = whole.finished()
        code, _ = whole.run()
        changed = {path for path, body in whole.finished().items() if before.get(path) != body}
        found = f"writes {_named(changed)} again" if changed else "writes nothing new"
        yield Check("second run", code == 0 and not changed, found)
        yield self._after_kill(before, took)

    def _after_kill(self, whole: dict[str, bytes], took: float) -> Check:
        """Whatever lies under a final name after a kill must be what it is after a whole run."""
        killed = _Place(self, "killed")
        killed.run(kill_after=took / 2)
        torn = {path for path, body in killed.finished().items() if whole.get(path) != body}
        return Check("kill -9", not torn, "leaves no torn file" if not torn else f"leaves {_named(torn)} torn")


class _Place:
    def __init__(self, trial: Trial, name: str) -> None:
        self._trial = trial
        self._root = trial.folder / name
        self._home = self._root / CLIENT
        shutil.copytree(trial.given, self._home / "in")
        for folder in ("out", "log"):
            (self._home / folder).mkdir()

    def run(self, kill_after: float | None = None) -> tuple[int | None, float]:
        """Its exit code, None if it had to be ended, and the seconds it took."""
        usual = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/tmp"}
        own = {"CLIENT_ID": CLIENT, "SOURCE_PATH": str(self._root), "LOG_PATH": str(self._home / "log")}
        begun = time.monotonic()
        with (self._root / "stdout.log").open("ab") as out, (self._root / "stderr.log").open("ab") as err:
            try:
                process = subprocess.Popen(
                    self._trial.command,
                    env={**usual, **self._trial.env, **own},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            except OSError as failed:
                raise Invalid(
                    f"{shlex.join(self._trial.command)!r:.80} cannot be run: {failed.strerror}.",
                    remedy="Name a program that can be executed; in a script, say by what in its first line.",
                ) from None
        try:
            self._wait(process, kill_after)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        return (None if code == -signal.SIGKILL else code), time.monotonic() - begun

    def _wait(self, process: "subprocess.Popen[bytes]", kill_after: float | None) -> None:
        with suppress(subprocess.TimeoutExpired):
            if kill_after is not None:
                process.wait(kill_after)
            elif self._trial.is_stream:
                self._wait_quiet(process)
                process.terminate()
                process.wait(STOP_SECONDS)
            else:
                process.wait(self._trial.seconds)

    def _wait_quiet(self, process: "subprocess.Popen[bytes]") -> None:
        """Until it has written something and nothing more comes."""
        ends, last, since = time.monotonic() + self._trial.seconds, set[str](), time.monotonic()
        while process.poll() is None and time.monotonic() < ends:
            names = set(self.finished())
            if names != last:
                last, since = names, time.monotonic()
            if last and time.monotonic() - since > QUIET_SECONDS:
                return
            time.sleep(LOOK_SECONDS)

    def finished(self) -> dict[str, bytes]:
        return {path: (self._home / "out" / path).read_bytes() for path in self._paths() if may_be_finished(path)}

    def _paths(self) -> list[str]:
        out = self._home / "out"
        return sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())

    def about_end(self, code: int | None, took: float) -> Iterator[Check]:
        if self._trial.is_stream:
            found = f"ran on {STOP_SECONDS:g} s after SIGTERM" if code is None else f"ended with {code} on SIGTERM"
            yield Check("stop", code is not None, found)
        else:
            limit = f"{self._trial.seconds:g} s"
            found = f"ran on after {limit}" if code is None else f"ended with {code} after {took:.2f} s"
            yield Check("end", code == 0, found)
        errors = (self._root / "stderr.log").read_text(errors="replace").strip()
        if errors:
            yield Check("stderr", None, errors.splitlines()[-1][:200])

    def about_files(self) -> Iterator[Check]:
        finished, left = self.finished(), [path for path in self._paths() if not may_be_finished(path)]
        found = f"{len(finished)} finished: {_named(finished)}" if finished else "none in out"
        yield Check("files", bool(finished), found)
        yield Check("half-written", not left, f"left: {_named(left)}" if left else "none left")
        unread = sorted(path.name for path in (self._home / "in").rglob("*") if path.is_file())
        note = f"not taken: {_named(unread)}; the next run reads them again" if unread else "all taken"
        yield Check("input", None if unread else True, note)
        yield from self._about_tables(finished)

    def _about_tables(self, finished: dict[str, bytes]) -> Iterator[Check]:
        if not self._trial.tables:
            return
        for path in finished:
            try:
                yield Check("table", True, f"{path} goes to {table_of(path, self._trial.tables)}")
            except Invalid as refused:
                yield Check("table", False, f"{path}: {refused}")


def _named(paths: Sequence[str] | set[str] | dict[str, bytes]) -> str:
    shown = sorted(paths)
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")
