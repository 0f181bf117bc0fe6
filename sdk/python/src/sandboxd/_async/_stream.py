"""Streams of events, and the output of a command that is being run."""

from __future__ import annotations

import sys
import warnings
from collections import deque
from dataclasses import replace
from types import TracebackType
from typing import Callable, Deque, Optional, Type

from .. import models
from .._errors import NetworkError, SandboxdError
from .._how_it_ended import not_started
from .._names import OtherNames
from .._output import LONGEST_SILENCE, Output, Stderr, Stdout, parse_output
from .._request import given, shown
from .._sse import Event, Parser, TooLong
from ._context import AsyncSandboxContext
from ._platform import Iterated
from ._transport import AsyncResponse, Call

OnLine = Callable[[str], object]


class AsyncEventSource:
    """The events of a response body."""

    def __init__(self, response: AsyncResponse) -> None:
        self._response = response
        self._parser = Parser()
        self._events: Deque[Event] = deque()

    @property
    def has_events(self) -> bool:
        """Whether a parsed event waits to be returned."""
        return bool(self._events)

    @property
    def last_id(self) -> Optional[str]:
        """The last complete id, also of an event without data."""
        return self._parser.last_id

    async def next(self) -> Optional[Event]:
        """The next event; None at the end of the body."""
        while not self._events:
            if not await self.fill():
                return None
        return self._events.popleft()

    async def fill(self, silence: float = LONGEST_SILENCE) -> bool:
        """Reads once from the connection; False at the end of the body. Fails if nothing arrives for `silence` seconds."""
        chunk = await self._response.read(silence)
        if chunk is None:
            return False
        try:
            self._events.extend(self._parser.push(chunk))
        except TooLong as cause:
            raise NetworkError(str(cause)) from cause
        return True

    async def close(self) -> None:
        """Closes the connection, also while another thread or task reads."""
        await self._response.interrupt()


class AsyncOutputStream(Iterated, OtherNames):
    """
    The output of a command that is being run. The command starts with the first read, or with `start`. The service kills the
    command when the stream is closed before `Done`: by `close`, at the end of a `with` block, by cancellation, or when the
    stream is collected.
    """

    _is_unused = False
    """Whether it was neither read nor closed. Also of an object whose creation fails, which is collected like others."""

    def __init__(
        self,
        context: AsyncSandboxContext,
        call: Call,
        command: str,
        *,
        run_id: Optional[str],
        line_ends: bool,
        on_stdout: Optional[OnLine],
        on_stderr: Optional[OnLine],
    ) -> None:
        self._context = context
        self._call = call
        self._command = shown(command)
        self._run_id = run_id
        self._line_ends = line_ends
        self._on_stdout = on_stdout
        self._on_stderr = on_stderr
        self._source: Optional[AsyncEventSource] = None
        self._is_over = False
        self._bytes = 0
        self._last_error = ""
        """The last line of standard error: it says why a command could not start."""
        self.request_id: Optional[str] = None
        """The id of the request, once the command runs."""
        self._is_unused = True

    def __del__(self) -> None:
        # At the end of the interpreter what warnings need may be gone.
        if self._is_unused and not sys.is_finalizing():
            text = f"the stream of {self._command!r} was never iterated, so the command did not run; done() reads it to its end"
            warnings.warn(text, RuntimeWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._command!r}{', closed' if self._is_over else ''}>"

    async def start(self) -> AsyncOutputStream:
        """Starts the command and returns once it runs."""
        self._is_unused = False
        if self._source is not None or self._is_over:
            return self
        self._context.record("exec.started", command=self._command)
        try:
            response = await self._context.stream_in_run(self._call, self._run_id)
        except SandboxdError as error:
            self._is_over = True
            self._report(error)
            raise
        self.request_id = response.request_id
        self._source = AsyncEventSource(response)
        return self

    async def done(self) -> models.Done:
        """Reads the rest and returns the end of the command."""
        async for output in self:
            if isinstance(output, models.Done):
                return output
        raise _broken_off()

    async def close(self) -> None:
        """Closes the connection, which kills the command."""
        self._is_unused = False
        self._is_over = True
        if self._source is not None:
            await self._source.close()

    def __aiter__(self) -> AsyncOutputStream:
        return self

    async def __anext__(self) -> Output:
        await self.start()
        if self._is_over or self._source is None:
            raise StopAsyncIteration
        try:
            output = await self._read(self._source)
        except BaseException as error:
            # Another thread or task closed the stream.
            is_closed = self._is_over
            await self.close()
            if isinstance(error, SandboxdError):
                if is_closed:
                    raise StopAsyncIteration from None
                self._report(error)
            raise
        if isinstance(output, models.Done):
            await self.close()
            self._context.record("exec.streamed", command=self._command, bytes=self._bytes)
            completed(self._context, self._command, output)
        return output

    async def __aenter__(self) -> AsyncOutputStream:
        return await self.start()

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.close()

    async def _read(self, source: AsyncEventSource) -> Output:
        while True:
            event = await source.next()
            if event is None:
                raise _broken_off()
            output = parse_output(event, self._line_ends)
            if output is None:
                continue
            if isinstance(output, models.Done) and output.message is None:
                return replace(output, message=not_started(output, self._last_error))
            if isinstance(output, Stderr):
                self._last_error = output.line
            if isinstance(output, (Stdout, Stderr)):
                self._bytes += len(output.line.encode(errors="replace")) + (0 if self._line_ends else 1)
                on_line = self._on_stdout if isinstance(output, Stdout) else self._on_stderr
                if on_line is not None:
                    on_line(output.line)
            return output

    def _report(self, error: SandboxdError) -> None:
        failed(self._context, self._command, error)


def completed(context: AsyncSandboxContext, command: str, done: "models.Done | models.ExecutionResult") -> None:
    """Records the end of a command."""
    duration, code, signal = done.duration_ms, done.exit_code, done.signal
    reason = given(reason=done.reason)
    context.record("exec.completed", command=command, durationMs=duration, exitCode=code, signal=signal, **reason)


def failed(context: AsyncSandboxContext, command: str, error: SandboxdError) -> None:
    """Records that a command failed without a result, and reports the error."""
    context.record("exec.error", command=command, code=error.code_name, message=error.message)
    context.report(error)


def _broken_off() -> SandboxdError:
    return NetworkError("the stream ended before the command did; the command may have been killed")
