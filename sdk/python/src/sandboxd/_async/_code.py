"""Running code in the code interpreter of a sandbox, and its contexts."""

from __future__ import annotations

import json
import re
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from .. import models
from .._bodies import Texts, mapping
from .._errors import NetworkError, SandboxdError, argument_error, of_event
from .._names import OtherNames
from .._request import given, shown
from .._retry import Safety
from .._sse import Event
from .._units import Duration, milliseconds, seconds
from ._context import AsyncSandboxContext
from ._payload import json_payload
from ._stream import AsyncEventSource
from ._transport import Call

TIMEOUT = 60.0
"""The time limit of code without one, as the service has it."""
START_TIMEOUT = 90.0
"""Longer than a kernel needs to start."""

OnText = Callable[[str], object]
OnResult = Callable[[models.CodeResult], object]
OnException = Callable[[models.CodeException], object]
Callback = Optional[Callable[[Any], object]]
ContextOrId = Union[models.CodeContext, str]


class AsyncCodeContexts(OtherNames):
    """The contexts of the code interpreter. Each has a kernel, which keeps its state from one execution to the next."""

    def __init__(self, context: AsyncSandboxContext) -> None:
        self._context = context

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._context.id}>"

    async def list(self) -> List[models.CodeContext]:
        """Lists the contexts."""
        call = Call("GET", self._path(), Safety.REPEATABLE)
        return list((await self._context.json(call, models.CodeContextList.from_json)).data)

    async def create(self, language: Optional[str] = None, *, cwd: Optional[str] = None) -> models.CodeContext:
        """
        Starts a kernel, and returns its context.

        - `language`: `python` (default), `javascript`, `bash`, or another kernel of the image.
        - `cwd`: its working directory. Default: that of the sandbox.
        """
        body = json_payload(given(language=language, cwd=cwd))
        call = Call("POST", self._path(), Safety.ONLY_UNSTARTED, body, timeout=START_TIMEOUT)
        return await self._context.json(call, models.CodeContext.from_json)

    async def restart(self, context: ContextOrId) -> models.CodeContext:
        """Replaces the kernel of a context by a new one, without the state of the old one."""
        path = self._path(f"/{context_id(context)}/restart")
        call = Call("POST", path, Safety.REPEATABLE, timeout=START_TIMEOUT)
        return await self._context.json(call, models.CodeContext.from_json)

    async def remove(self, context: ContextOrId) -> None:
        """Removes a context and kills its kernel."""
        path = self._path(f"/{context_id(context)}")
        call = Call("DELETE", path, Safety.AFTER_ANSWER)
        await self._context.json(call, models.CodeContextRemoved.from_json)

    def _path(self, rest: str = "") -> str:
        return self._context.path(f"/code/contexts{rest}")


async def run_code(
    context: AsyncSandboxContext,
    code: str,
    *,
    language: Optional[str],
    in_context: Optional[ContextOrId],
    env: Optional[Texts],
    timeout: Optional[Duration],
    auto_resume: Optional[bool],
    run_id: Optional[str],
    output: CodeOutput,
) -> models.CodeExecution:
    """Runs code and returns its outcome. The service interrupts the code when the connection ends."""
    body = given(code=code, language=language, timeoutMs=milliseconds(timeout), autoResume=auto_resume)
    if in_context is not None:
        body["contextId"] = context_id(in_context)
    body.update(given(env=mapping("env", env)))
    command = shown(code)
    context.record("exec.started", command=command)
    try:
        if output.is_wanted:
            execution = await _streamed(context, body, run_id, output)
        else:
            limit = TIMEOUT if timeout is None else seconds(timeout)
            call = Call(
                "POST",
                context.path("/code"),
                Safety.ONLY_UNSTARTED,
                json_payload(body),
                timeout=limit + context.transport.settings.timeout,
            )
            execution = await context.in_run(call, run_id, models.CodeExecution.from_json)
    except SandboxdError as error:
        context.record("exec.error", command=command, code=error.code_name, message=error.message)
        context.report(error)
        raise
    exit_code = 0 if execution.exception is None else 1
    duration = execution.duration_ms
    context.record("exec.completed", command=command, durationMs=duration, exitCode=exit_code, signal=None)
    return execution


async def _streamed(
    context: AsyncSandboxContext, body: Dict[str, Any], run_id: Optional[str], output: CodeOutput
) -> models.CodeExecution:
    payload = json_payload(body)
    call = Call("POST", context.path("/code"), Safety.ONLY_UNSTARTED, payload, accept="text/event-stream")
    source = AsyncEventSource(await context.stream_in_run(call, run_id))
    try:
        while True:
            event = await source.next()
            if event is None:
                raise NetworkError("the stream ended before the code did; the code may have been interrupted")
            execution = output.take(event)
            if execution is not None:
                return execution
    finally:
        await source.close()


class CodeOutput:
    """The output of code so far, and the callbacks that get its parts."""

    def __init__(
        self,
        on_stdout: Optional[OnText],
        on_stderr: Optional[OnText],
        on_result: Optional[OnResult],
        on_exception: Optional[OnException],
    ) -> None:
        self._on_stdout = on_stdout
        self._on_stderr = on_stderr
        self._on_result = on_result
        self._on_exception = on_exception
        self._fields: Dict[str, Any] = {"stdout": "", "stderr": "", "results": [], "exception": None}

    @property
    def is_wanted(self) -> bool:
        """Whether a callback wants the output before the end."""
        callbacks = (self._on_stdout, self._on_stderr, self._on_result, self._on_exception)
        return any(callback is not None for callback in callbacks)

    def take(self, event: Event) -> Optional[models.CodeExecution]:
        """Adds an event; returns the outcome after the last one. Ignores events that this version does not know."""
        if event.name == "error":
            raise of_event(event.data) or NetworkError("the stream ended with an error that cannot be parsed")
        if event.name not in ("stdout", "stderr", "result", "exception", "done"):
            return None
        try:
            execution, callback, value = self._added(event.name, json.loads(event.data))
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            raise NetworkError(f"the event '{event.name}' of the stream cannot be parsed") from cause
        if callback is not None:
            callback(value)
        return execution

    def _added(self, name: str, document: Dict[str, Any]) -> Tuple[Optional[models.CodeExecution], Callback, Any]:
        """The outcome, or a callback with its argument."""
        if name == "done":
            return models.CodeExecution.from_json({**document, **self._fields}), None, None
        if name == "result":
            self._fields["results"].append(document)
            return None, self._on_result, models.CodeResult.from_json(document)
        if name == "exception":
            self._fields["exception"] = document
            return None, self._on_exception, models.CodeException.from_json(document)
        text = str(document["text"])
        self._fields[name] += text
        return None, self._on_stdout if name == "stdout" else self._on_stderr, text


def context_id(context: ContextOrId) -> str:
    """The id of a context, which becomes part of a path."""
    text = context if isinstance(context, str) else context.context_id
    if not re.fullmatch(r"[A-Za-z0-9-]{1,100}", text):
        raise argument_error("context", "a context id has 1 to 100 letters, digits and hyphens")
    return text
