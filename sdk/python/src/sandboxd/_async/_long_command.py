"""
Commands with a time limit that is longer than the service lets a client wait. They run detached, and their output is collected, so that
callers of `execute` see no difference.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Dict, Optional

from .. import models
from .._capture import LONGEST_OUTPUT, Capture
from .._errors import NetworkError, SandboxdError
from .._output import Dropped, Stderr, Stdout
from .._request import QueryValue, key_headers
from .._retry import Safety
from . import _platform
from ._context import AsyncSandboxContext
from ._executions import AsyncFollowedOutput
from ._payload import json_payload
from ._transport import Call

LONGEST_ATTACHED = 300.0
"""The longest time limit of a command whose client waits for the response, as the service has it."""


class _Output(AsyncFollowedOutput):
    """The output, whose errors the caller of `run_long` reports."""

    def _report(self, error: SandboxdError) -> None:
        pass


async def run_long(
    context: AsyncSandboxContext, body: Dict[str, Any], run_id: Optional[str], key: Optional[str], *, is_killed: bool
) -> models.ExecutionResult:
    """Runs a command detached and returns its result. The caller reports failures. With `is_killed`, cancelling the call kills it."""
    payload = json_payload({**body, "detached": True})
    call = Call("POST", context.path("/execute"), Safety.COMMAND, payload, key_headers(key))
    view: Optional[models.Execution] = None
    try:
        view = await context.in_run(call, run_id, models.Execution.from_json)
        return await _collected(context, view.execution_id)
    except _platform.CANCELLED:
        if is_killed and call.progress.may_have_effect:
            kill = partial(_kill, context, call, view)
            await context.transport.cleanups.run("killing the command of a cancelled call", kill)
        raise


async def _collected(context: AsyncSandboxContext, execution_id: str) -> models.ExecutionResult:
    """The result of an execution, once it has ended."""

    def path(rest: str = "", **query: QueryValue) -> str:
        return context.path(f"/executions/{execution_id}{rest}", **query)

    stdout, stderr = Capture(LONGEST_OUTPUT), Capture(LONGEST_OUTPUT)
    is_dropped = False
    done: Optional[models.Done] = None
    async with _Output(context, path, after=None, line_ends=True) as output:
        async for part in output:
            if isinstance(part, Stdout):
                stdout.push(part.line)
            elif isinstance(part, Stderr):
                stderr.push(part.line)
            elif isinstance(part, Dropped):
                is_dropped = True
            else:
                done = part
    if done is None:
        raise NetworkError("the output ended before the command did")
    if done.exit_code is None and done.signal is None:
        # As in the result of an attached command, standard error says why it could not start.
        call = Call("GET", path(), Safety.REPEATABLE)
        stderr.push((await context.transport.json(call, models.Execution.from_json)).message or "")
    return models.ExecutionResult(
        stdout=stdout.text(),
        stderr=stderr.text(),
        exit_code=done.exit_code,
        signal=done.signal,
        duration_ms=done.duration_ms,
        reason=done.reason,
        message=done.message,
        stdout_truncated=stdout.is_truncated or is_dropped or None,
        stderr_truncated=stderr.is_truncated or is_dropped or None,
    )


async def _kill(context: AsyncSandboxContext, start: Call, view: Optional[models.Execution]) -> None:
    """Kills a command. If its id is unknown, a request with the same idempotency key returns it."""
    transport = context.transport
    if view is None:
        view = await transport.json(transport.for_cleanup(start), models.Execution.from_json)
    call = Call("DELETE", context.path(f"/executions/{view.execution_id}"), Safety.REPEATABLE)
    await transport.json(transport.for_cleanup(call), models.Execution.from_json)
