"""A cutter behind stages that decode the uploaded bytes: bytes in, pieces out. Refuses too many bytes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from millrace.formats.decompress import BrokenOff
from millrace.formats.pieces import CutPiece, Cutter, ResumePoint
from millrace.model.errors import Invalid, MillraceError, TooLarge


class Stage(Protocol):
    @property
    def transparent(self) -> bool:
        """Whether the bytes pass unchanged. Then an offset behind the stage is also an offset before it."""

    def feed(self, piece: bytes) -> Iterator[bytes]: ...

    def finish(self) -> Iterator[bytes]: ...


class Meter:
    """A stage that refuses more than `limit` bytes."""

    transparent = True

    def __init__(self, limit: int, what: str, passed: int) -> None:
        self._limit = limit
        self._what = what
        self._passed = passed

    def feed(self, piece: bytes) -> Iterator[bytes]:
        self._passed += len(piece)
        if self._passed > self._limit:
            raise TooLarge(
                f"{self._what} has, or decompresses to, more than {self._limit} bytes.",
                remedy="Split it, or raise the table's max_file_size_mb.",
            )
        yield piece

    def finish(self) -> Iterator[bytes]:
        yield from ()


class Pipeline:
    """Passes each piece through the stages in order, and the result to the cutter."""

    def __init__(self, stages: Sequence[Stage], cutter: Cutter, what: str) -> None:
        self._stages = stages
        self._cutter = cutter
        self._what = what

    def feed(self, piece: bytes) -> Iterator[CutPiece]:
        return self._read(map(self._placed, self._through(piece, 0)))

    def finish(self) -> Iterator[CutPiece]:
        return self._read(self._finish())

    def _read(self, cuts: Iterator[CutPiece]) -> Iterator[CutPiece]:
        try:
            yield from cuts
        except (MillraceError, OSError, MemoryError):
            raise
        except (
            Exception
        ) as error:  # A reader may raise anything on foreign bytes. A second attempt would raise it again.
            reason = f"{type(error).__name__}: {error}"
            raise Invalid(
                f"{self._what} cannot be read after {self._cutter.rows_cut()} rows: {reason}"[:400],
                remedy="Is it whole, and is its type the one that was named?",
            ) from error

    def _finish(self) -> Iterator[CutPiece]:
        for number, stage in enumerate(self._stages, 1):
            try:
                for piece in stage.finish():
                    yield from map(self._placed, self._through(piece, number))
            except BrokenOff as broken:
                yield from map(self._placed, self._cutter.drain())
                raise self._broken_off(broken.kind) from broken
        yield from map(self._placed, self._cutter.finish())

    def drain(self) -> Iterator[CutPiece]:
        return map(self._placed, self._cutter.drain())

    def resume_point(self) -> ResumePoint | None:
        return self._cutter.resume_point() if self._transparent() else None

    def rows_cut(self) -> int:
        return self._cutter.rows_cut()

    def close(self) -> None:
        self._cutter.close()

    def _through(self, piece: bytes, number: int) -> Iterator[CutPiece]:
        if number == len(self._stages):
            yield from self._cutter.feed(piece)
            return
        for changed in self._stages[number].feed(piece):
            yield from self._through(changed, number + 1)

    def _transparent(self) -> bool:
        return all(stage.transparent for stage in self._stages)

    def _placed(self, cut: CutPiece) -> CutPiece:
        return cut if self._transparent() else replace(cut, source_end=None)

    def _broken_off(self, kind: str) -> Invalid:
        return Invalid(
            f"{self._what} ends in the middle of the {kind} stream after {self._cutter.rows_cut()} rows.",
            remedy="Send the whole file again.",
        )
