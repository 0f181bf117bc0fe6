"""Events of the account or of one sandbox: listing, following and posting them."""

from __future__ import annotations

import json
import random
import time
from datetime import datetime
from types import TracebackType
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Protocol, Sequence, Type, Union

from .. import models
from .._errors import NetworkError, SandboxdError, argument_error, of_event, termination_reason
from .._names import other_keywords
from .._request import LARGEST_PAGE, QueryValue, key_headers, query_string, time_text
from .._retry import Policy, Safety, wait
from .._sse import Event
from ._context import AsyncSandboxContext
from ._payload import json_payload
from ._platform import Iterated, begun, sleep
from ._stream import AsyncEventSource
from ._transport import AsyncResponse, AsyncTransport, Call

Time = Union[str, datetime]
SHORT = 1.0
"""A connection that ends sooner counts as a failure, so that reconnecting slows down."""
GIVE_UP_AFTER = 300.0
_POLICY = Policy(retries=1 << 60, max_retry_wait=GIVE_UP_AFTER)
_FIRST_ID = "ev_0000000000000000"


class AsyncEvents:
    """Events of the account, or of one sandbox."""

    def __init__(self, transport: AsyncTransport, sandbox: Optional[AsyncSandboxContext] = None) -> None:
        self._transport = transport
        self._sandbox = sandbox

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {'the account' if self._sandbox is None else self._sandbox.id}>"

    @other_keywords
    def list(
        self,
        *,
        kinds: Sequence[str] = (),
        run: Optional[str] = None,
        since: Optional[Time] = None,
        until: Optional[Time] = None,
        sandbox_id: Optional[str] = None,
        after: Optional[str] = None,
        before: Optional[str] = None,
        newest_first: bool = False,
        page_size: int = LARGEST_PAGE,
    ) -> AsyncListedEvents:
        """
        Lists recorded events, the oldest first. No event is missed or repeated.

        - `kinds`: names or groups such as `exec.completed` or `exec.*`; several are alternatives. One may be a text instead of a list.
        - `run`: the id of a run. `sandbox_id`: the id of a sandbox, for events of the account.
        - `since`, `until`: times, each a `datetime` or a text in ISO 8601 format.
        - `after`, `before`: ids of events.
        - `newest_first`: lists the newest event first.
        - `page_size`: how many events a request fetches.
        """
        filters = _filters(kinds, run, since, until, self._sandbox_id(sandbox_id))

        async def fetch(offset: int, after: Optional[str], before: Optional[str]) -> models.EventList:
            order = "desc" if newest_first else None
            query = {"limit": page_size, "offset": offset, **filters, "after": after, "before": before, "order": order}
            return await self._page(query)

        return AsyncListedEvents(fetch, after=after, before=before, newest_first=newest_first)

    @other_keywords
    def follow(
        self,
        *,
        kinds: Sequence[str] = (),
        run: Optional[str] = None,
        since: Optional[Time] = None,
        until: Optional[Time] = None,
        sandbox_id: Optional[str] = None,
        after: Optional[str] = None,
    ) -> AsyncEventStream:
        """
        Delivers events as they are recorded, after the event with the id `after` or from now on. The stream reconnects and
        continues after the last event, so that no event is missed or repeated. It ends when the sandbox is terminated; that of
        the account does not end. `kinds`, `run`, `since`, `until`, `sandbox_id`: those of `list`.

        Without `after`, the blocking client connects at the call. With asyncio the first read connects, and misses what happens
        before it: use the stream in an `async with` statement, or call `start`, before you do what causes the events.

            with sandbox.events.follow() as events:
                sandbox.execute("make")
                for event in events:
                    print(event.type)
                    if event.type == "exec.completed":
                        break

        A stream that is not read to its end is closed at the end of the block, by `close`, or when it is collected.
        """
        filters = _filters(kinds, run, since, until, self._sandbox_id(sandbox_id))

        async def connect(last_id: Optional[str]) -> AsyncResponse:
            headers = {} if last_id is None else {"last-event-id": last_id}
            path = self._path(filters, of_account=self._sandbox is None)
            call = Call("GET", path, Safety.REPEATABLE, headers=headers, accept="text/event-stream")
            return await self._transport.stream(call)

        def recorded_after(last_id: str) -> AsyncListedEvents:
            return self.list(
                kinds=kinds, run=run, since=since, until=until, sandbox_id=sandbox_id, after=last_id
            )

        stream = AsyncEventStream(connect, recorded_after, after)
        # A stream with a position misses nothing, also if it connects later.
        return begun(stream) if after is None else stream

    stream = follow

    async def post(
        self, events: Sequence[Union[models.EventBody, Mapping[str, Any]]], *, idempotency_key: Optional[str] = None
    ) -> int:
        """
        Records events of a client program in a sandbox and returns their number. An event is an `EventBody` or a JSON object with
        `type` and `data`. `Run` does this in batches. With `idempotency_key`, a request with the same key within 24 hours records
        nothing.
        """
        if self._sandbox is None:
            raise argument_error("events", "only the events of a sandbox accept posted events")
        body = [event.to_json() if isinstance(event, models.EventBody) else dict(event) for event in events]
        headers = key_headers(idempotency_key)
        call = Call("POST", self._sandbox.path("/events"), Safety.REPEATABLE, json_payload(body), headers)
        return (await self._sandbox.json(call, models.EventsRecorded.from_json)).recorded

    async def _page(self, query: Mapping[str, QueryValue]) -> models.EventList:
        if self._sandbox is not None:
            try:
                call = Call("GET", self._path(query, of_account=False), Safety.REPEATABLE)
                return await self._transport.json(call, models.EventList.from_json)
            except SandboxdError as error:
                # The events of a terminated sandbox remain in the list of the account.
                if termination_reason(error) is None:
                    raise
        call = Call("GET", self._path(query, of_account=True), Safety.REPEATABLE)
        return await self._transport.json(call, models.EventList.from_json)

    def _path(self, query: Mapping[str, QueryValue], *, of_account: bool) -> str:
        if of_account or self._sandbox is None:
            return "/v1/events" + query_string(query)
        return self._sandbox.path("/events") + query_string({**query, "sandboxId": None})

    def _sandbox_id(self, sandbox_id: Optional[str]) -> Optional[str]:
        return sandbox_id if self._sandbox is None else self._sandbox.id


def _filters(
    kinds: Sequence[str],
    run: Optional[str],
    since: Optional[Time],
    until: Optional[Time],
    sandbox_id: Optional[str],
) -> Dict[str, QueryValue]:
    if isinstance(kinds, str):
        kinds = [kinds]
    return {
        "sandboxId": sandbox_id,
        "type": kinds,
        "runId": run,
        "since": time_text(since),
        "until": time_text(until),
    }


class FetchEvents(Protocol):
    """Fetches a page of events."""

    async def __call__(self, offset: int, after: Optional[str], before: Optional[str]) -> models.EventList:
        """Fetches the page."""
        ...


class AsyncListedEvents(Iterated):
    """Recorded events. Iterating them fetches pages on demand, each after the last event of the previous one."""

    def __init__(
        self, fetch: FetchEvents, *, after: Optional[str], before: Optional[str], newest_first: bool
    ) -> None:
        self._fetch = fetch
        self._after = after
        self._before = before
        self._newest_first = newest_first

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: iterate it, or call all()>"

    async def page(self, offset: int = 0) -> models.EventList:
        """The page that starts at `offset`."""
        return await self._fetch(offset, self._after, self._before)

    async def total(self) -> int:
        """The exact number of events that match the filters now."""
        return (await self.page()).pagination.total

    async def all(self) -> List[models.RuntimeEvent]:
        """All events."""
        return [event async for event in self]

    async def __aiter__(self) -> AsyncIterator[models.RuntimeEvent]:
        after, before = self._after, self._before
        while True:
            page = await self._fetch(0, after, before)
            for event in page.data:
                yield event
            # An empty page that announces more would cause an endless loop.
            if not page.pagination.has_more or not page.data:
                return
            if self._newest_first:
                before = page.data[-1].id
            else:
                after = page.data[-1].id


class Connect(Protocol):
    """Opens a stream of events after an id."""

    async def __call__(self, last_id: Optional[str]) -> AsyncResponse:
        """Opens the stream."""
        ...


class RecordedAfter(Protocol):
    """Lists the recorded events after an id."""

    def __call__(self, last_id: str) -> AsyncListedEvents:
        """Lists the events."""
        ...


class AsyncEventStream(Iterated):
    """
    An event stream that reconnects. Its position is the last event that was returned, or a later id that the service sent; a new
    connection continues after it. When the sandbox is gone, the rest comes from the list of recorded events.
    """

    def __init__(self, connect: Connect, recorded_after: RecordedAfter, after: Optional[str]) -> None:
        self.last_event_id = after
        """The id of the last event that was returned or skipped."""
        self._connect = connect
        self._recorded_after = recorded_after
        self._recorded: Optional[AsyncIterator[models.RuntimeEvent]] = None
        self._source: Optional[AsyncEventSource] = None
        self._is_started = False
        self._is_over = False
        self._connected_at = 0.0
        # The number of short connections in succession.
        self._short = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} after {self.last_event_id}{', closed' if self._is_over else ''}>"

    async def start(self) -> AsyncEventStream:
        """Connects, so that all events that are recorded from now on are delivered. The first read does this otherwise."""
        if self._is_started:
            return self
        self._is_started = True
        try:
            source = self._source = await self._connected()
            # Without a first event or id, a lost connection could not be continued.
            while self.last_event_id is None and not source.has_events:
                if not await source.fill():
                    raise NetworkError("the stream of events ended")
                if not source.has_events:
                    self.last_event_id = source.last_id
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Ends the stream."""
        self._is_over = True
        await self._disconnect()

    def __aiter__(self) -> AsyncEventStream:
        return self

    async def __anext__(self) -> models.RuntimeEvent:
        if not self._is_over:
            await self.start()
        try:
            while not self._is_over:
                event = await self._step()
                if event is not None:
                    return event
        except SandboxdError:
            is_closed = self._is_over
            await self.close()
            if not is_closed:
                raise
        except BaseException:
            # A cancelled read loses nothing: the next one connects again after the last event.
            await self._disconnect()
            raise
        raise StopAsyncIteration

    async def __aenter__(self) -> AsyncEventStream:
        return await self.start()

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.close()

    async def _step(self) -> Optional[models.RuntimeEvent]:
        """Returns an event, or makes progress towards the next one."""
        if self._recorded is not None:
            try:
                return await self._recorded.__anext__()
            except StopAsyncIteration:
                await self.close()
                return None
        source = self._source
        if source is None:
            await self._reconnect()
            return None
        try:
            if source.has_events:
                return self._parse(await source.next())
            if not await source.fill():
                await self._disconnect()
            elif not source.has_events:
                # Waiting events are returned first, and advance the position.
                self._advance(source.last_id)
        except SandboxdError as error:
            if not error.retryable or self._is_over:
                raise
            await self._disconnect()
        return None

    def _parse(self, event: Optional[Event]) -> Optional[models.RuntimeEvent]:
        if event is None:
            return None
        if event.name == "error":
            raise of_event(event.data) or NetworkError("the stream ended with an error that cannot be parsed")
        if event.id is not None and self.last_event_id is not None and event.id <= self.last_event_id:
            return None
        self._advance(event.id)
        try:
            return models.RuntimeEvent.from_json(json.loads(event.data))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def _advance(self, event_id: Optional[str]) -> None:
        if event_id is not None and event_id > (self.last_event_id or ""):
            self.last_event_id = event_id

    async def _reconnect(self) -> None:
        begin = time.monotonic()
        self._short = self._short + 1 if begin - self._connected_at < SHORT else 0
        if self._short > 0:
            await sleep(wait(_POLICY, self._short, None, random.random()) or 0.0)
        attempt = 0
        while not self._is_over:
            attempt += 1
            try:
                self._source = await self._connected()
                return
            except SandboxdError as error:
                if termination_reason(error) is not None:
                    self._recorded = self._recorded_after(self.last_event_id or _FIRST_ID).__aiter__()
                    return
                pause = wait(_POLICY, attempt, error.retry_after, random.random())
                is_late = pause is None or time.monotonic() - begin + pause > GIVE_UP_AFTER
                if pause is None or is_late or not error.retryable:
                    raise
            await sleep(pause)

    async def _connected(self) -> AsyncEventSource:
        source = AsyncEventSource(await self._connect(self.last_event_id))
        self._connected_at = time.monotonic()
        return source

    async def _disconnect(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            await source.close()
