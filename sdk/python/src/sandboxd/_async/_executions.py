"""Detached executions: starting, inspecting, following, writing to, and ending them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Optional, Union

from .. import models
from .._bodies import signal_name
from .._errors import CommandFailed, ExecutionEnded, ExecutionTimeout, SandboxdError
from .._names import OtherNames
from .._output import Output, offset_before_end, parse_output, size_between
from .._request import LARGEST_PAGE, QueryValue, checked_id
from .._retry import Safety
from .._sse import Event
from .._units import Duration, seconds
from . import _platform
from ._context import AsyncSandboxContext
from ._following import AsyncFollowing, OutOfTime, persistently
from ._paging import AsyncPagedList
from ._payload import AsyncPayload, json_payload
from ._terminal import AsyncTerminal, ExecutionPath, attach
from ._transport import Call

FIRST_POLL = 0.02
LONGEST_POLL = 1.0
"""Seconds between two requests of `wait`: a tenth of the time so far, between these."""
UNREAD_BYTES = 2 << 20
"""Bytes after which `wait` tells the service that the output before is read, so that the command does not wait for a reader."""
STORED_BYTES = 16 << 20
"""The most output that the service stores of an execution."""
TAIL_BYTES = 64 << 10
"""Bytes of each stream in the error of a command that failed."""


class AsyncExecutions(OtherNames):
    """The executions of a sandbox: its detached commands and terminals."""

    def __init__(self, context: AsyncSandboxContext) -> None:
        self._context = context

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._context.id}>"

    def list(self) -> AsyncPagedList[models.Execution]:
        """Lists the executions, newest first: the running ones and those that ended recently."""

        async def fetch(offset: int) -> models.ExecutionList:
            path = self._context.path("/executions", limit=LARGEST_PAGE, offset=offset)
            return await self._context.json(Call("GET", path, Safety.REPEATABLE), models.ExecutionList.from_json)

        return AsyncPagedList(fetch, lambda view: view.execution_id)

    async def get(self, execution_id: str) -> AsyncExecution:
        """Returns an execution with its current state."""
        execution = self.handle(execution_id)
        await execution.refresh()
        return execution

    def handle(self, execution_id: str) -> AsyncExecution:
        """An object for an execution. Sends no request, so the execution need not exist."""
        return AsyncExecution(self._context, checked_id("execution_id", "ex_", execution_id))


class AsyncExecution(OtherNames):
    """
    A detached command or a terminal. Methods with `auto_resume` resume a paused sandbox, unless it is False: then they fail with
    `InvalidState`.
    """

    def __init__(
        self, context: AsyncSandboxContext, execution_id: str, view: Optional[models.Execution] = None
    ) -> None:
        self.id = execution_id
        """The identifier."""
        self._context = context
        self._view = view

    def __repr__(self) -> str:
        state = "" if self._view is None else f", state={self._view.state!r}, command={self._view.command!r}"
        return f"{type(self).__name__}({self.id!r}{state})"

    @property
    def view(self) -> Optional[models.Execution]:
        """The state as of the last response. Sends no request."""
        return self._view

    async def refresh(self) -> models.Execution:
        """Fetches the current state."""
        return await self._viewed(Call("GET", self._path(), Safety.REPEATABLE))

    async def output(self, *, after: Optional[str] = None) -> models.ExecutionOutput:
        """
        Returns all output so far that is stored, up to 16 MiB, or the output after the offset `after`, such as `next` of the last result.
        `more` says whether the command has printed more than that meanwhile, and `dropped` whether a part was
        not stored any more.
        """
        page = await self._page(after)
        stdout, stderr, is_dropped = [page.stdout], [page.stderr], page.dropped
        # A command that prints forever stays ahead.
        while page.more and sum(map(len, stdout + stderr)) < STORED_BYTES:
            page = await self._page(page.next)
            if page.dropped:
                # The command prints faster than its output is read, and what follows the gap is another text.
                stdout, stderr, is_dropped = [], [], True
            stdout.append(page.stdout)
            stderr.append(page.stderr)
        return replace(page, stdout="".join(stdout), stderr="".join(stderr), dropped=is_dropped)

    async def wait(self, *, timeout: Optional[Duration] = None, check: bool = False) -> models.Execution:
        """
        Waits until the command ends, and returns how: `exit_code`, and `signal` and `reason` if it was killed. What the command printed
        is the result of `output`. A lost connection is established again.

        - `timeout`: the longest wait, in seconds or as a text such as `"10m"`. Then the call raises `ExecutionTimeout`, and the
          command continues: wait again, or end it with `kill`. Default: as long as the command takes.
        - `check`: raises `CommandFailed` unless the command exits with 0; its `result` has the end of the output.
        """
        end = None if timeout is None else time.monotonic() + seconds(timeout)
        view = await self.refresh()
        begin = time.monotonic()
        read_to = view.output_end
        while view.ended_at is None:
            now = time.monotonic()
            pause = poll_pause(now - begin)
            left = pause if end is None else end - now
            if left <= 0:
                raise self._still_runs(timeout)
            await _platform.sleep(min(pause, left))
            try:
                view = await self._poll(end)
            except OutOfTime:
                raise self._still_runs(timeout) from None
            if view.ended_at is None and size_between(read_to, view.output_end) > UNREAD_BYTES:
                read_to = view.output_end
                await self._page(read_to)
        if check and view.exit_code != 0:
            await self._fail(view)
        return view

    def follow(self, *, after: Optional[str] = None, line_ends: bool = False) -> AsyncFollowedOutput:
        """
        The output as it appears, from the offset `after` or the beginning. Lost connections are established again, and no line is missed
        or repeated. With `line_ends`, the concatenation of the lines is the output as written.

        A line arrives when it ends, or with the end of the output: a prompt such as `Name: ` is not delivered while the command waits
        for input. `output` has it, and so has `terminal`.
        """
        return AsyncFollowedOutput(self._context, self._path, after=after, line_ends=line_ends)

    async def write_stdin(
        self, data: Union[str, bytes], *, close: bool = False, auto_resume: Optional[bool] = None
    ) -> models.StdinWritten:
        """
        Writes to standard input, which `start` keeps open with `open_stdin=True`, and returns when the command has taken the bytes;
        with `close`, closes it afterwards. A write whose response is lost is not retried. What the command asks for without a line
        end is in `output`, not in `follow`.
        """
        path = self._path("/stdin", close=close or None, autoResume=auto_resume)
        payload = AsyncPayload(data, "application/octet-stream")
        call = Call("POST", path, Safety.ONLY_UNSTARTED, payload)
        try:
            return await self._context.json(call, models.StdinWritten.from_json)
        except ExecutionEnded as error:
            # Without it a command such as `cat` ends at once, because its input does.
            error.message += "; only start(..., open_stdin=True) keeps standard input open"
            raise

    async def signal(self, name: Union[str, int], *, auto_resume: Optional[bool] = None) -> models.Execution:
        """Sends a signal, such as `SIGINT`, `"INT"` or `signal.SIGINT`."""
        path = self._path("/signal", autoResume=auto_resume)
        return await self._viewed(Call("POST", path, Safety.AFTER_ANSWER, json_payload({"signal": signal_name(name)})))

    async def cancel(self, *, auto_resume: Optional[bool] = None) -> models.Execution:
        """Kills the command and all its processes. Has no effect if it has ended."""
        return await self._viewed(Call("DELETE", self._path(autoResume=auto_resume), Safety.REPEATABLE))

    kill = cancel

    def attach(
        self, *, after: Union[int, str] = 0, auto_resume: Optional[bool] = None
    ) -> _platform.Opening[AsyncTerminal]:
        """Attaches to a terminal. The output begins at the offset `after`: with the stored output, or with `"end"` after it."""
        return _platform.opening(attach(self._context, self._path, after=after, auto_resume=auto_resume))

    def _path(self, rest: str = "", **query: QueryValue) -> str:
        return self._context.path(f"/executions/{self.id}{rest}", **query)

    async def _page(self, after: Optional[str]) -> models.ExecutionOutput:
        call = Call("GET", self._path("/output", after=after), Safety.REPEATABLE)
        return await self._context.json(call, models.ExecutionOutput.from_json)

    async def _poll(self, end: Optional[float]) -> models.Execution:
        """The current state. Errors that pass are awaited, as those of a followed output."""
        call = Call("GET", self._path(), Safety.REPEATABLE)
        try:
            self._view = await persistently(self._context.transport, call, models.Execution.from_json, end)
        except SandboxdError as error:
            self._context.report(error)
            raise
        return self._view

    def _still_runs(self, timeout: Optional[Duration]) -> SandboxdError:
        limit = 0.0 if timeout is None else seconds(timeout)
        how = "wait again, or end it with kill()"
        return ExecutionTimeout(f"the command has not ended within {limit:g} s, and continues: {how}", details={"executionId": self.id})

    async def _fail(self, view: models.Execution) -> None:
        """Raises the error of the failed command, with the end of its output."""
        after = offset_before_end(view.output_start, view.output_end, TAIL_BYTES)
        try:
            output = await self.output(after=after)
        except SandboxdError as error:
            raise CommandFailed(view.command, _result(view, "", "", is_cut=True)) from error
        raise CommandFailed(view.command, _result(view, output.stdout, output.stderr, is_cut=after != "0.0"))

    async def _viewed(self, call: Call) -> models.Execution:
        self._view = await self._context.json(call, models.Execution.from_json)
        return self._view


def poll_pause(elapsed: float) -> float:
    """Seconds until the next request of a wait that has taken `elapsed` seconds."""
    return min(max(FIRST_POLL, elapsed / 10), LONGEST_POLL)


def _result(view: models.Execution, stdout: str, stderr: str, *, is_cut: bool) -> models.ExecutionResult:
    """An ended execution in the form of the result of an attached command."""
    # As in the result of an attached command, standard error says why it could not start.
    not_started = (view.message or "") if view.reason is None else ""
    return models.ExecutionResult(
        stdout=stdout,
        stderr=stderr + not_started,
        exit_code=view.exit_code,
        signal=view.signal,
        duration_ms=view.duration_ms or 0,
        reason=view.reason,
        message=None if view.reason is None else view.message,
        stdout_truncated=is_cut or None,
        stderr_truncated=is_cut or None,
    )


class AsyncFollowedOutput(AsyncFollowing[Output]):
    """
    The output of a detached execution. The connection is established again when it is lost. `offset` is the offset after the last
    output that was returned, with which another `follow` can continue.
    """

    def __init__(
        self, context: AsyncSandboxContext, path: ExecutionPath, *, after: Optional[str], line_ends: bool
    ) -> None:
        super().__init__(context.transport, path("/output", lineEnds=line_ends or None), after)
        self._context = context
        self._line_ends = line_ends

    def _parse(self, event: Event) -> Optional[Output]:
        return parse_output(event, self._line_ends)

    def _is_last(self, item: Output) -> bool:
        return isinstance(item, models.Done)

    def _report(self, error: SandboxdError) -> None:
        self._context.report(error)
