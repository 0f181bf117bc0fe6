"""The changes in a directory of a sandbox."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Optional, Type

from .._errors import NetworkError, SandboxdError, UnknownError, of_event
from .._sse import Event
from .._watch_events import FileChange, WatchEvent, WatchOverflow
from ._context import AsyncSandboxContext
from ._stream import AsyncEventSource
from ._transport import Call


class AsyncFileWatch:
    """
    The watch of a directory: an iterator of `FileChange` and `WatchOverflow`. It begins with the first read, or with `start`. It
    ends when the directory is deleted or the watch is closed: by `close`, at the end of a `with` block, by cancellation, or when
    the object is collected. A lost connection is an error: changes meanwhile are unknown.
    """

    def __init__(self, context: AsyncSandboxContext, call: Call) -> None:
        self._context = context
        self._call = call
        self._source: Optional[AsyncEventSource] = None
        self._is_over = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._context.id}{', closed' if self._is_over else ''}>"

    async def start(self) -> AsyncFileWatch:
        """Returns once the watch is active: later changes are delivered."""
        if self._source is not None or self._is_over:
            return self
        try:
            response = await self._context.stream_in_run(self._call, None)
            source = self._source = AsyncEventSource(response)
            first = await _next(source)
            if first.name != "ready":
                raise _failure(first)
        except BaseException as error:
            # Another thread or task closed the watch.
            is_closed = self._is_over
            await self.close()
            if isinstance(error, SandboxdError):
                if is_closed:
                    return self
                self._context.report(error)
            raise
        return self

    async def close(self) -> None:
        """Ends the watch."""
        self._is_over = True
        if self._source is not None:
            await self._source.close()

    def __aiter__(self) -> AsyncFileWatch:
        return self

    async def __anext__(self) -> WatchEvent:
        await self.start()
        if self._is_over or self._source is None:
            raise StopAsyncIteration
        try:
            event = await self._read(self._source)
        except BaseException as error:
            is_closed = self._is_over
            await self.close()
            if isinstance(error, SandboxdError):
                if is_closed:
                    raise StopAsyncIteration from None
                self._context.report(error)
            raise
        if event is None:
            await self.close()
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> AsyncFileWatch:
        return await self.start()

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.close()

    async def _read(self, source: AsyncEventSource) -> Optional[WatchEvent]:
        """The next event; None at the end of the watch. Ignores events that this version does not know."""
        while True:
            event = await _next(source)
            if event.name == "change":
                return _change(event)
            if event.name == "overflow":
                return WatchOverflow()
            if event.name == "error":
                raise _failure(event)
            if event.name == "done":
                return None


async def _next(source: AsyncEventSource) -> Event:
    event = await source.next()
    if event is None:
        raise NetworkError("the stream ended before the watch did")
    return event


def _change(event: Event) -> FileChange:
    try:
        return FileChange.from_json(json.loads(event.data))
    except ValueError as cause:
        raise UnknownError(f"a change cannot be parsed: {cause}", status=200) from cause


def _failure(event: Event) -> SandboxdError:
    unknown = "the watch ended with an error that cannot be parsed"
    return of_event(event.data) or UnknownError(unknown, status=200)
