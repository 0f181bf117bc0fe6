"""Streams that connect again when a connection is lost."""

from __future__ import annotations

import time
from dataclasses import replace
from types import TracebackType
from typing import Any, Callable, Generic, Optional, Type, TypeVar

from .._errors import NetworkError, SandboxdError
from .._output import LONGEST_SILENCE, PASSING
from .._retry import Safety
from .._sse import Event
from . import _platform
from ._stream import AsyncEventSource
from ._transport import AsyncTransport, Call

T = TypeVar("T")
LONGEST_AWAY = 120.0
"""Seconds of reconnecting without success."""
FIRST_WAIT = 0.1
LONGEST_WAIT = 2.0


class OutOfTime(Exception):
    """The time of the reader is over. The stream can be read on."""


class AsyncFollowing(Generic[T]):
    """A stream of items, each an event with an id. A new connection continues after the last item that was returned."""

    def __init__(self, transport: AsyncTransport, url: str, after: Optional[str]) -> None:
        self.offset = after
        """The position after the last item that was returned, with which another stream can continue."""
        self._end: Optional[float] = None
        self._transport = transport
        self._url = url
        self._source: Optional[AsyncEventSource] = None
        self._is_over = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} after {self.offset}{', closed' if self._is_over else ''}>"

    async def close(self) -> None:
        """Ends the stream. What it follows continues."""
        self._is_over = True
        await self._disconnect()

    def __aiter__(self) -> AsyncFollowing[T]:
        return self

    async def __anext__(self) -> T:
        away_since: Optional[float] = None
        pause = FIRST_WAIT
        while not self._is_over:
            try:
                item = await self._read()
                if item is not None:
                    return item
            except SandboxdError as error:
                if self._is_over:
                    break
                await self._disconnect()
                if away_since is None:
                    away_since = time.monotonic()
                if not isinstance(error, PASSING) or time.monotonic() - away_since > LONGEST_AWAY:
                    self._is_over = True
                    self._report(error)
                    raise
                await _platform.sleep(pause)
                pause = min(pause * 2, LONGEST_WAIT)
            except BaseException:
                await self._disconnect()
                raise
        raise StopAsyncIteration

    async def __aenter__(self) -> AsyncFollowing[T]:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.close()

    def _parse(self, event: Event) -> Optional[T]:
        """The item in an event; None for an event that this version does not know. Raises the error in an event `error`."""
        raise NotImplementedError

    def _is_last(self, item: T) -> bool:
        """Whether the stream ends with the item."""
        raise NotImplementedError

    def _report(self, error: SandboxdError) -> None:
        """Reports an error that ends the stream."""

    def limit(self, end: float) -> None:
        """Lets reads fail with `OutOfTime` at `end`, a time of `time.monotonic`. For other modules of the SDK."""
        self._end = end

    def _left(self, longest: float) -> float:
        """The seconds that the next operation may take, at most `longest`."""
        if self._end is None:
            return longest
        left = self._end - time.monotonic()
        if left <= 0:
            raise OutOfTime
        return min(left, longest)

    async def _read(self) -> Optional[T]:
        if self._source is None:
            self._source = await self._open()
        if self._source is None:
            return None
        # Comments keep the connection alive, so each read has the time that is left.
        while not self._source.has_events:
            if not await self._source.fill(self._left(LONGEST_SILENCE)):
                raise NetworkError("the stream ended before its last event")
        event = await self._source.next()
        if event is None:
            return None
        # A temporary error carries no item, so the offset is unchanged.
        item = self._parse(event)
        if item is None:
            return None
        self.offset = event.id
        if self._is_last(item):
            await self.close()
        return item

    async def _open(self) -> Optional[AsyncEventSource]:
        headers = {} if self.offset is None else {"last-event-id": self.offset}
        timeout = self._left(self._transport.settings.timeout)
        max_wait = self._left(self._transport.settings.policy.max_retry_wait)
        call = Call(
            "GET",
            self._url,
            Safety.REPEATABLE,
            headers=headers,
            accept="text/event-stream",
            timeout=timeout,
            max_wait=max_wait,
        )
        response = await self._transport.stream(call)
        if response.status != 204:
            return AsyncEventSource(response)
        await response.close()
        self._is_over = True
        return None

    async def _disconnect(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            await source.close()


async def persistently(transport: AsyncTransport, call: Call, parse: Callable[[Any], T], end: Optional[float] = None) -> T:
    """The response to a read. Errors that pass are awaited, as those of a stream. Fails with `OutOfTime` at `end`."""
    since = time.monotonic()
    while True:
        try:
            if end is None:
                return await transport.json(call, parse)
            left = max(end - time.monotonic(), 0.001)
            limit = min(left, transport.settings.timeout)
            return await transport.json(replace(call, timeout=limit, max_wait=min(left, transport.settings.policy.max_retry_wait)), parse)
        except SandboxdError as error:
            if not isinstance(error, PASSING) or time.monotonic() - since >= LONGEST_AWAY:
                raise
            if end is not None and time.monotonic() + FIRST_WAIT >= end:
                raise OutOfTime from None
            await _platform.sleep(FIRST_WAIT if end is not None else LONGEST_WAIT)
