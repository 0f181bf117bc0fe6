"""What the parts of a sandbox object share: its transport, its run, and the report of failures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, Mapping, Optional, Protocol, TypeVar

from .. import models
from .._errors import SandboxdError, termination_reason
from .._lifecycle import CallFailed, Handlers, Terminated
from .._request import QueryValue, query_string, run_headers
from ._transport import AsyncResponse, AsyncTransport, Call

T = TypeVar("T")


class Recorder(Protocol):
    """Records what sandboxes do; a `Run`."""

    @property
    def id(self) -> str:
        """The id of the run."""
        ...

    def record(self, kind: str, data: Mapping[str, Any], sandbox_id: Optional[str] = None) -> Any:
        """Records an event."""
        ...


class AsyncSandboxContext:
    """A sandbox, as its parts see it."""

    def __init__(self, transport: AsyncTransport, sandbox_id: str, run: Optional[Recorder] = None) -> None:
        self.transport = transport
        self.id = sandbox_id
        self.handlers = Handlers()
        self.run = run
        self.is_terminated = False
        self.termination: Optional[Terminated] = None
        """The result of the first `terminate` of this object that succeeded."""
        self.view: Optional[models.Sandbox] = None
        """The state as of the last response that had it."""

    def path(self, rest: str = "", **query: QueryValue) -> str:
        """The URL path of the sandbox with a suffix and a query."""
        return f"/v1/sandboxes/{self.id}{rest}{query_string(query)}"

    async def json(self, call: Call, parse: Callable[[Any], T]) -> T:
        """Sends a call, and reports its failure."""
        try:
            return await self.transport.json(call, parse)
        except SandboxdError as error:
            self.report(error)
            raise

    async def in_run(self, call: Call, run_id: Optional[str], parse: Callable[[Any], T]) -> T:
        """Sends a call that counts as part of the run. The caller reports the failure."""
        return await self.transport.json(self._with_run(call, run_id), parse)

    async def stream_in_run(self, call: Call, run_id: Optional[str]) -> AsyncResponse:
        """The same for a streamed response."""
        return await self.transport.stream(self._with_run(call, run_id))

    def record(self, kind: str, **data: Any) -> None:
        """Records an event of this sandbox in its run."""
        if self.run is not None:
            self.run.record(kind, data, self.id)

    def report(self, error: SandboxdError) -> None:
        """Reports a failed call, and the termination of the sandbox if the error says so."""
        reason = termination_reason(error)
        if reason is not None:
            self.ended(Terminated(reason))
        self.record("sandbox.error", code=error.code_name, message=error.message, requestId=error.request_id)
        self.handlers.notify(CallFailed(error))

    def ended(self, end: Terminated) -> None:
        """Reports the termination, once."""
        if self.is_terminated:
            return
        self.is_terminated = True
        self.changed_state("terminated", terminated_at=end.terminated_at)
        self.record("sandbox.terminated", reason=end.reason, totalRuntimeMs=end.total_runtime_ms)
        self.handlers.notify(end)

    def changed_state(self, state: str, **times: Optional[str]) -> None:
        """Sets the state of the view and its times, after a call whose response has no view."""
        if self.view is not None and state != self.view.state:
            earlier: Dict[str, Any] = dict.fromkeys(("expires_at", "paused_at", "hibernated_at"))
            self.view = replace(self.view, state=state, **{**earlier, **times})

    def _with_run(self, call: Call, run_id: Optional[str]) -> Call:
        if run_id is None and self.run is not None:
            run_id = self.run.id
        return call if run_id is None else replace(call, headers={**call.headers, **run_headers(run_id)})
