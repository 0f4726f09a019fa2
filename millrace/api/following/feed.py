"""The one reader of events of a server. It feeds all who follow events and all who wait for the end of a span.

So the number of queries does not grow with theirs, and each event is made into text once."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

from millrace.api.following.follower import MOST_WAITING, Bundle, FollowedBy, Follower
from millrace.api.following.reading import FedEvent, fed_events, newest_event
from millrace.auth.slots import SlotLimit, TenantSlots
from millrace.model.ops import Applied
from millrace.observe import gauge, observe
from millrace.store.engine import ControlStore
from millrace.turns import PLATFORM

PAGE = 500
# How often it looks if nothing wakes it: another server may have applied an op.
IDLE_SECONDS = 1.0
# The more connections heard the last events, the longer the next ones are gathered: a connection costs the same whether it
# is sent one event or fifty.
HAND_OUTS_PER_SECOND = 400.0
SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 1.25
HEARTBEAT_SECONDS = 15.0
TOKEN_SECONDS = 2.0
MOST_FOLLOWERS = 2000
SPAN_OVER = ("millrace.span.ended", "millrace.span.aborted")
T = TypeVar("T")


class EventFeed:
    """Used from one event loop, except `on_applied`. Reads nothing while nobody listens."""

    def __init__(self, store: ControlStore, is_valid: Callable[[str | None], bool], most_of_tenant: int) -> None:
        """`is_valid`: whether the token of a follower still is."""
        self._store = store
        self._is_valid = is_valid
        self._checked = 0.0
        self._slots = TenantSlots(
            SlotLimit(
                "followers", "connections that follow events", most_of_tenant, MOST_FOLLOWERS,
                remedy="Close some, or follow once and pass the events on.", retry_seconds=HEARTBEAT_SECONDS,
            )
        )  # fmt: skip
        self._loop = asyncio.get_running_loop()
        # Its own thread: what others read must not delay it.
        self._thread = ThreadPoolExecutor(1, "events")
        self._beginning = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._followers: set[Follower] = set()
        self._spans: dict[tuple[str, str], set[asyncio.Future[None]]] = {}
        self._position = 0
        self._recent: deque[FedEvent] = deque()
        # The last event that it has passed and no longer remembers.
        self._forgotten = 0

    def on_applied(self, _applied: list[Applied]) -> None:
        """Called from the controller's thread."""
        self._loop.call_soon_threadsafe(self._woken.set)

    def refuse_too_many(self, owner: str | None) -> None:
        """`owner`: the tenant that a follower counts for; None: the platform."""
        self._slots.refuse_one_more(owner or PLATFORM, is_platform=owner is None)

    async def frames(self, who: FollowedBy, after: int) -> AsyncGenerator[bytes]:
        """The events behind `after`, as text: those of the past page by page, then as they come. Empty text: nothing has come
        for long. It ends if whoever takes the text is too slow, or if the token does."""
        with self._counted(who.tenant):
            await self._begin()
            while after < self._forgotten:
                seen_to = self._position
                page = await asyncio.to_thread(fed_events, self._store, who.heard, after, PAGE)
                if page:
                    yield b"".join(event.frame for event in page)
                after = page[-1].number if len(page) == PAGE else max(seen_to, after, *(each.number for each in page))
            follower = Follower(who, after)
            if who.heard in (recent := _bundles(self._recent)):
                follower.offer(recent[who.heard])
            self._followers.add(follower)
            try:
                while (frames := await follower.take(HEARTBEAT_SECONDS)) or not follower.farewell:
                    yield frames
                yield follower.farewell
            finally:
                self._followers.discard(follower)

    @asynccontextmanager
    async def span_end(self, tenant: str, name: str) -> AsyncIterator["asyncio.Future[None]"]:
        """Done when the span is over. Within the block, look first whether it is over already."""
        over: asyncio.Future[None] = self._loop.create_future()
        waiting = self._spans.setdefault((tenant, name), set())
        waiting.add(over)
        try:
            await self._begin()
            yield over
        finally:
            waiting.discard(over)
            if not waiting and self._spans.get((tenant, name)) is waiting:
                del self._spans[tenant, name]

    def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
        self._thread.shutdown(wait=False)

    @contextmanager
    def _counted(self, owner: str | None) -> Iterator[None]:
        try:
            with self._slots.taken(owner or PLATFORM):
                gauge("event_followers", self._slots.total)
                yield
        finally:
            gauge("event_followers", self._slots.total)

    async def _begin(self) -> None:
        """Reads from now on, unless it does already. Who wants older events asks the store for them."""
        async with self._beginning:
            if self._reader is None or self._reader.done():
                self._position = self._forgotten = await self._in_thread(newest_event, self._store)
                self._recent.clear()
                self._reader = self._loop.create_task(self._read())

    async def _read(self) -> None:
        while self._slots.total or self._spans:
            self._woken.clear()
            page: list[FedEvent] = []
            try:
                await self._check_tokens()
                page = await self._in_thread(fed_events, self._store, None, self._position, PAGE)
            except Exception as error:
                # Whatever it is, followers wait for the events behind it.
                observe("trouble", kind="events", error=f"{type(error).__name__}: {error}"[:1000])
            handed = self._hand_out(page) if page else 0
            # Followers need a while to pass on what they got, also if more is there already.
            await asyncio.sleep(min(max(handed / HAND_OUTS_PER_SECOND, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS))
            if len(page) == PAGE:
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._woken.wait()

    async def _check_tokens(self) -> None:
        """Each once, however many connections it has."""
        if self._loop.time() < self._checked + TOKEN_SECONDS:
            return
        self._checked = self._loop.time()
        tokens = {follower.who.token for follower in self._followers}
        revoked = await self._in_thread(lambda: {token for token in tokens if not self._is_valid(token)})
        for follower in self._followers:
            if follower.who.token in revoked:
                follower.revoke()

    def _hand_out(self, page: list[FedEvent]) -> int:
        """How many followers have something to send now."""
        self._position = page[-1].number
        self._recent.extend(page)
        while len(self._recent) > MOST_WAITING:
            self._forgotten = self._recent.popleft().number
        for event in page:
            for over in self._spans.get((event.tenant, event.subject), ()) if event.type in SPAN_OVER else ():
                if not over.done():
                    over.set_result(None)
        bundles = _bundles(page)
        hearing = [
            (follower, bundles[follower.who.heard]) for follower in self._followers if follower.who.heard in bundles
        ]
        for follower, bundle in hearing:
            follower.offer(bundle)
        return len(hearing)

    async def _in_thread(self, work: Callable[..., T], *given: Any) -> T:
        return await self._loop.run_in_executor(self._thread, work, *given)


def _bundles(events: Sequence[FedEvent]) -> dict[str | None, Bundle]:
    """By the tenant whose followers hear it; None: those who hear everybody's."""
    of_tenant: defaultdict[str, list[FedEvent]] = defaultdict(list)
    for event in events:
        of_tenant[event.tenant].append(event)
    bundles: dict[str | None, Bundle] = {tenant: Bundle.of(its) for tenant, its in of_tenant.items()}
    return bundles | ({None: Bundle.of(events)} if events else {})
