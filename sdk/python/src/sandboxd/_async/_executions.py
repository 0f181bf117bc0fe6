"""Detached executions: starting, inspecting, following, writing to, and ending them."""

from __future__ import annotations

from typing import Optional, Union

from .. import models
from .._errors import SandboxdError
from .._output import Output, parse_output
from .._request import LARGEST_PAGE, QueryValue, checked_id
from .._retry import Safety
from .._sse import Event
from . import _platform
from ._context import AsyncSandboxContext
from ._following import AsyncFollowing
from ._paging import AsyncPagedList
from ._payload import AsyncPayload, json_payload
from ._terminal import AsyncTerminal, ExecutionPath, attach
from ._transport import Call


class AsyncExecutions:
    """The executions of a sandbox: its detached commands and terminals."""

    def __init__(self, context: AsyncSandboxContext) -> None:
        self._context = context

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


class AsyncExecution:
    """A detached command or a terminal."""

    def __init__(
        self, context: AsyncSandboxContext, execution_id: str, view: Optional[models.Execution] = None
    ) -> None:
        self.id = execution_id
        """The identifier."""
        self._context = context
        self._view = view

    @property
    def view(self) -> Optional[models.Execution]:
        """The state as of the last response. Sends no request."""
        return self._view

    async def refresh(self) -> models.Execution:
        """Fetches the current state."""
        return await self._viewed(Call("GET", self._path(), Safety.REPEATABLE))

    async def output(self, *, after: Optional[str] = None) -> models.ExecutionOutput:
        """Returns the output so far, or the output after an offset such as `next` of the last response."""
        call = Call("GET", self._path("/output", after=after), Safety.REPEATABLE)
        return await self._context.json(call, models.ExecutionOutput.from_json)

    async def wait(self) -> models.Execution:
        """Waits until the command ends, and reconnects when a connection is lost."""
        view = await self.refresh()
        if view.ended_at is not None:
            return view
        async with self.follow(after=view.output_end) as output:
            async for _ in output:
                pass
        return await self.refresh()

    def follow(self, *, after: Optional[str] = None, line_ends: bool = False) -> AsyncFollowedOutput:
        """
        The output as it appears, from an offset or the beginning. Lost connections are established again, and no line is missed
        or repeated. With `line_ends`, the concatenation of the lines is the output as written.
        """
        return AsyncFollowedOutput(self._context, self._path, after=after, line_ends=line_ends)

    async def write_stdin(
        self, data: Union[str, bytes], *, close: bool = False, auto_resume: Optional[bool] = None
    ) -> models.StdinWritten:
        """
        Writes to standard input and returns when the command has taken the bytes; with `close`, closes it afterwards. A write
        whose response is lost is not retried.
        """
        path = self._path("/stdin", close=close or None, autoResume=auto_resume)
        payload = AsyncPayload(data, "application/octet-stream")
        call = Call("POST", path, Safety.ONLY_UNSTARTED, payload)
        return await self._context.json(call, models.StdinWritten.from_json)

    async def signal(self, name: str, *, auto_resume: Optional[bool] = None) -> models.Execution:
        """Sends a signal, such as `SIGINT`."""
        path = self._path("/signal", autoResume=auto_resume)
        return await self._viewed(Call("POST", path, Safety.AFTER_ANSWER, json_payload({"signal": name})))

    async def cancel(self, *, auto_resume: Optional[bool] = None) -> models.Execution:
        """Kills the command and all its processes. Has no effect if it has ended."""
        return await self._viewed(Call("DELETE", self._path(autoResume=auto_resume), Safety.REPEATABLE))

    def attach(
        self, *, after: Union[int, str] = 0, auto_resume: Optional[bool] = None
    ) -> _platform.Opening[AsyncTerminal]:
        """Attaches to a terminal. The output begins at the offset `after`: with the stored output, or with `"end"` after it."""
        return _platform.opening(attach(self._context, self._path, after=after, auto_resume=auto_resume))

    def _path(self, rest: str = "", **query: QueryValue) -> str:
        return self._context.path(f"/executions/{self.id}{rest}", **query)

    async def _viewed(self, call: Call) -> models.Execution:
        self._view = await self._context.json(call, models.Execution.from_json)
        return self._view


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
