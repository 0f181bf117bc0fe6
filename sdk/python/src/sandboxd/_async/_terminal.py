"""Interactive terminals: opening, attaching, and attaching again after a lost connection."""

from __future__ import annotations

import json
import time
from collections import deque
from types import TracebackType
from typing import Any, Deque, Dict, Mapping, Optional, Protocol, Tuple, Type, Union

from websockets.exceptions import ConnectionClosed

from .. import models
from .._errors import NetworkError, SandboxdError, UnknownError, of_fields
from .._output import PASSING
from .._request import QueryValue
from .._terminal_events import (
    TerminalDisconnected,
    TerminalDropped,
    TerminalEnded,
    TerminalEvent,
    TerminalOutput,
    TerminalReconnected,
)
from ._context import AsyncSandboxContext
from ._platform import AsyncSocket, sleep

LONGEST_AWAY = 120.0
"""Seconds of reconnecting without success."""
FIRST_WAIT = 0.1
LONGEST_WAIT = 2.0


class ExecutionPath(Protocol):
    """The URL path of an execution with a suffix and a query."""

    def __call__(self, rest: str = "", **query: QueryValue) -> str:
        """Returns the path."""
        ...


async def attach(
    context: AsyncSandboxContext, path: ExecutionPath, *, after: Union[int, str], auto_resume: Optional[bool]
) -> AsyncTerminal:
    """Attaches to the terminal of an execution."""
    terminal = AsyncTerminal(context, path, after=after, auto_resume=auto_resume)
    try:
        await terminal.connect()
    except SandboxdError as error:
        context.report(error)
        raise
    return terminal


class AsyncTerminal:
    """An attached terminal. Iterating it delivers its output."""

    def __init__(
        self,
        context: AsyncSandboxContext,
        path: ExecutionPath,
        *,
        after: Union[int, str],
        auto_resume: Optional[bool],
    ) -> None:
        self._context = context
        self._path = path
        self._auto_resume = auto_resume
        # The offset: bytes received since the beginning.
        self._position = after
        # The last size, to send again on the next connection.
        self._size: Optional[Tuple[int, int]] = None
        self._socket: Optional[AsyncSocket] = None
        self._queue: Deque[TerminalEvent] = deque()
        self._lost: Optional[SandboxdError] = None
        self._is_over = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._context.id}{', closed' if self._is_over else ''}>"

    async def send(self, data: Union[str, bytes]) -> None:
        """Sends input. Input in transit when a connection is lost may be lost; it never arrives twice."""
        await self._send(data.encode() if isinstance(data, str) else data)

    async def resize(self, cols: int, rows: int) -> None:
        """Sets the window size; the foreground process receives `SIGWINCH`."""
        self._size = (cols, rows)
        if self._socket is not None:
            await self._send_size()

    async def signal(self, name: str) -> None:
        """Sends a signal, such as `SIGINT`."""
        await self._send(json.dumps({"signal": name}))

    async def receive(self) -> Optional[TerminalEvent]:
        """Returns the next event; None after the end."""
        while True:
            if self._queue:
                event = self._queue.popleft()
                if isinstance(event, TerminalEnded):
                    await self.close()
                return event
            if self._is_over:
                return None
            if self._socket is None:
                await self._reconnect()
                continue
            try:
                message = await self._socket.receive()
            except (ConnectionClosed, OSError, EOFError) as cause:
                if not self._is_over:
                    await self._lose(NetworkError(f"the connection of the terminal was lost: {cause}"))
                continue
            await self._take(message)

    async def close(self) -> None:
        """Detaches. The terminal continues."""
        self._is_over = True
        await self._disconnect()

    async def connect(self) -> None:
        """Establishes the connection; for other modules of the SDK."""
        path = self._path("/attach", after=self._position, autoResume=self._auto_resume)
        self._socket = await self._context.transport.open_socket(path)
        if self._lost is not None:
            self._lost = None
            self._queue.append(TerminalReconnected())
        if self._size is not None:
            await self._send_size()

    def __aiter__(self) -> AsyncTerminal:
        return self

    async def __anext__(self) -> TerminalEvent:
        event = await self.receive()
        if event is None:
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> AsyncTerminal:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.close()

    async def _send(self, data: Union[str, bytes]) -> None:
        if self._socket is None:
            raise NetworkError("the terminal has ended" if self._is_over else "the terminal is not connected")
        try:
            await self._socket.send(data)
        except (ConnectionClosed, OSError) as cause:
            raise NetworkError(f"the connection of the terminal was lost: {cause}") from cause

    async def _send_size(self) -> None:
        if self._size is not None:
            cols, rows = self._size
            await self._send(json.dumps({"resize": {"cols": cols, "rows": rows}}))

    async def _take(self, message: Union[str, bytes]) -> None:
        if isinstance(message, bytes):
            if isinstance(self._position, int):
                self._position += len(message)
            self._queue.append(TerminalOutput(message))
            return
        try:
            await self._control(json.loads(message))
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            error = UnknownError(f"a message cannot be parsed: {cause}", status=101)
            await self._lose(error)

    async def _control(self, message: Mapping[str, Any]) -> None:
        fields: Optional[Dict[str, Any]] = message.get("error")
        position = message.get("position")
        if fields is not None:
            await self._lose(of_fields(fields))
        elif message.get("ended") is not None:
            self._queue.append(TerminalEnded(models.Execution.from_json(message["ended"])))
            await self._disconnect()
        elif position is not None:
            is_further = isinstance(self._position, int) and position > self._position
            self._position = int(position)
            if is_further:
                self._queue.append(TerminalDropped())

    async def _lose(self, error: SandboxdError) -> None:
        await self._disconnect()
        self._lost = error
        self._queue.append(TerminalDisconnected())

    async def _reconnect(self) -> None:
        error = self._lost or NetworkError("the terminal is not connected")
        since = time.monotonic()
        pause = FIRST_WAIT
        while isinstance(error, PASSING) and time.monotonic() - since < LONGEST_AWAY:
            await sleep(min(pause, LONGEST_WAIT))
            pause *= 2
            if self._is_over:
                return
            try:
                await self.connect()
                return
            except SandboxdError as failure:
                error = failure
        await self.close()
        self._context.report(error)
        raise error

    async def _disconnect(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()
