"""
Commands with a time limit that is longer than the service lets a client wait. They run detached, and their output is collected, so that
callers of `execute` see no difference.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Dict, Optional

from .. import models
from .._capture import LONGEST_OUTPUT, Capture
from .._errors import NetworkError, SandboxdError
from .._request import QueryValue, key_headers
from .._retry import Safety
from . import _platform
from ._context import AsyncSandboxContext
from ._executions import AsyncFollowedOutput, poll_pause
from ._following import persistently
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
    after: Optional[str] = None
    begin = time.monotonic()
    # Read while the command runs, because the service stores less than a command may print.
    while True:
        call = Call("GET", path("/output", after=after), Safety.REPEATABLE)
        page = await persistently(context.transport, call, models.ExecutionOutput.from_json)
        stdout.push(page.stdout)
        stderr.push(page.stderr)
        is_dropped = is_dropped or page.dropped
        has_grown, after = after not in (None, page.next), page.next
        if page.more:
            continue
        if page.state != "running":
            break
        if has_grown:
            begin = time.monotonic()
        await _platform.sleep(poll_pause(time.monotonic() - begin))
    end: Optional[models.Done] = None
    # The stream after the output says how the command ended, or that its result is unknown.
    async with _Output(context, path, after=after, line_ends=True) as output:
        async for part in output:
            end = part if isinstance(part, models.Done) else end
    if end is None:
        raise NetworkError("the output ended before the command did")
    if end.exit_code is None and end.signal is None:
        # As in the result of an attached command, standard error says why it could not start.
        call = Call("GET", path(), Safety.REPEATABLE)
        stderr.push((await context.transport.json(call, models.Execution.from_json)).message or "")
    return models.ExecutionResult(
        stdout=stdout.text(),
        stderr=stderr.text(),
        exit_code=end.exit_code,
        signal=end.signal,
        duration_ms=end.duration_ms,
        reason=end.reason,
        message=end.message,
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
