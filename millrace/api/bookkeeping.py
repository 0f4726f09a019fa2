"""Work that follows an effect: what notes it, cleans up behind it, or reads it for the answer.

Its threads are outside the shares, because a request that changed something must not be refused half-way. Each request asks
for a turn of a share before it changes anything, so this work is bounded by the requests under way."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import ParamSpec, TypeVar

AT_ONCE = 8
P = ParamSpec("P")
T = TypeVar("T")

_threads = ThreadPoolExecutor(AT_ONCE, "bookkeeping")


async def surely(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As `asyncio.to_thread`, but never refused, and done even if its caller is cancelled meanwhile."""
    context = copy_context()
    done = asyncio.get_running_loop().run_in_executor(_threads, lambda: context.run(work, *args, **kwargs))
    return await asyncio.shield(done)
