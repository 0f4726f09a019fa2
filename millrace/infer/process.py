"""Starts a what-if in a process of its own: bytes in as they come, its answer out. It cannot slow down or break its parent.

This module is light to import: it does not load the judge."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from millrace.model.errors import REFUSAL_KINDS, Invalid, MillraceError, Unavailable

WORK_SECONDS = 30.0
# Time to start, to cut what was spooled, and to judge one chunk beyond the bound, on a busy machine.
ANSWER_SECONDS = WORK_SECONDS + 60.0
LIFETIME_SECONDS = 3600
_KINDS: dict[str, type[MillraceError]] = {**REFUSAL_KINDS, Unavailable.code: Unavailable}


class WhatIfProcess:
    """A running what-if that receives bytes."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def send(self, piece: bytes) -> bool:
        """Waits while the process is busy. Returns whether it wants more."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(piece)
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    async def report(self) -> dict[str, Any]:
        """The report of the process after all bytes. Raises its refusal."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            output = await asyncio.wait_for(self._read_to_the_end(self._process.stdout), ANSWER_SECONDS)
        except TimeoutError:
            output = b""
        if not output.endswith(b"\n"):
            remedy = "Try fewer rows; an import judges such a chunk with care."
            raise Invalid("The process that judged the file ended, or took too long.", remedy=remedy, code="crashed")
        answer: dict[str, Any] = json.loads(output)
        if "refusal" in answer:
            refusal = answer["refusal"]
            raise _KINDS.get(refusal["code"], Invalid)(
                refusal["message"], remedy=refusal["remedy"], code=refusal["code"]
            )
        report: dict[str, Any] = answer["report"]
        return report

    async def _read_to_the_end(self, stdout: asyncio.StreamReader) -> bytes:
        output = await stdout.read()
        await self._process.wait()
        return output


@asynccontextmanager
async def what_if(job: dict[str, Any]) -> AsyncIterator[WhatIfProcess]:
    """Always kills the process at the end."""
    process = await _start()
    try:
        apart = WhatIfProcess(process)
        await apart.send(json.dumps({**job, "lifetime_seconds": LIFETIME_SECONDS}).encode() + b"\n")
        yield apart
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _start() -> Process:
    # The environment may hold secrets: the process gets none of it. With our import path and without `site` it starts faster.
    environment = {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "LANG": "C.UTF-8",
        "POLARS_MAX_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    return await asyncio.create_subprocess_exec(
        sys.executable, "-S", "-P", "-m", "millrace.infer.child",
        stdin=PIPE, stdout=PIPE, stderr=asyncio.subprocess.DEVNULL, cwd=os.sep, env=environment, limit=1 << 20,
    )  # fmt: skip
