"""Imports whose remaining chunks are ignored, each with the moment at which it was stopped.

The controller writes them, before it sends the markers behind the last chunks. The workers of the data plane read them, once
for each chunk. If a mark is lost, chunks that still arrive are judged and stored although their import has ended."""

import time
from dataclasses import dataclass
from datetime import timedelta

from millrace.atomic import replace_file
from millrace.exchange.home import Home


@dataclass(frozen=True, slots=True)
class StopList:
    home: Home

    def stop(self, import_id: str) -> None:
        """A stop is final: asked again it keeps its first moment, by which batches have been judged."""
        mark = self.home.stops / import_id
        if not mark.exists():
            replace_file(mark, str(time.time_ns() // 1_000_000))

    def stopped_ms(self, import_id: str) -> int | None:
        """When the import was stopped, in milliseconds since 1970; None if it was not."""
        try:
            # Older versions wrote marks without a moment; these are from long ago.
            return int((self.home.stops / import_id).read_bytes() or b"0")
        except FileNotFoundError:
            return None

    def forget_older_than(self, age: timedelta) -> None:
        oldest = time.time() - age.total_seconds()
        for mark in self.home.stops.iterdir() if self.home.stops.is_dir() else ():
            if mark.stat().st_mtime < oldest:
                mark.unlink(missing_ok=True)
