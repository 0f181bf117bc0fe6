"""
Terminating sandboxes: by request, at the end of a block, and after a call that was cancelled. Clean-ups wait for rate limits whatever the
client waits for, because otherwise sandboxes would be left.
"""

from __future__ import annotations

from typing import List, Optional

from .. import models
from .._errors import SandboxdError, termination_reason
from .._lifecycle import Terminated
from .._request import checked_id
from .._retry import Safety
from ._context import AsyncSandboxContext
from ._transport import AsyncTransport, Call

DELETED = "deleted"


async def terminate(context: AsyncSandboxContext) -> Terminated:
    """Terminates a sandbox, and reports it. If this object has done so before, returns the same result without a request."""
    if context.termination is None:
        return await _terminated(context, _call(context))
    return context.termination


async def clean_up(context: AsyncSandboxContext) -> Terminated:
    """The same as a clean-up."""
    return await _terminated(context, context.transport.for_cleanup(_call(context)))


async def undo_create(transport: AsyncTransport, create: Call, sandbox_id: Optional[str]) -> None:
    """Terminates the sandbox of a create. If its id is unknown, a request with the same idempotency key returns it."""
    if sandbox_id is None:
        view = await transport.json(transport.for_cleanup(create), models.Sandbox.from_json)
        sandbox_id = view.id
    await clean_up(_context(transport, sandbox_id))


async def undo_fork(transport: AsyncTransport, fork: Call, sandbox_ids: List[str]) -> None:
    """The same for the sandboxes of a fork. If one cannot be terminated, the others are."""
    if not sandbox_ids:
        forks = await transport.json(transport.for_cleanup(fork), models.ForkList.from_json)
        sandbox_ids = [view.id for view in forks.data]
    failures: List[SandboxdError] = []
    for sandbox_id in sandbox_ids:
        try:
            await clean_up(_context(transport, sandbox_id))
        except SandboxdError as error:
            if termination_reason(error) is None:
                failures.append(error)
    if failures:
        raise failures[0]


def _context(transport: AsyncTransport, sandbox_id: str) -> AsyncSandboxContext:
    return AsyncSandboxContext(transport, checked_id("sandbox_id", "sb_", sandbox_id))


def _call(context: AsyncSandboxContext) -> Call:
    return Call("DELETE", context.path(), Safety.REPEATABLE)


async def _terminated(context: AsyncSandboxContext, call: Call) -> Terminated:
    try:
        result = await context.in_run(call, None, models.TerminateResult.from_json)
        end = Terminated(DELETED, result.total_runtime_ms, result.terminated_at)
    except SandboxdError as error:
        # The response of the first attempt may have been lost.
        if error.repeats == 0 or termination_reason(error) != DELETED:
            context.report(error)
            raise
        end = Terminated(DELETED)
    context.ended(end)
    # Another sandbox may get the name, for which a repeated call is then.
    if context.id.startswith("sb_"):
        context.termination = end
    return end
