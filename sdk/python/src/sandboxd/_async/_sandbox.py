"""One sandbox."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Callable, Dict, List, Literal, Mapping, Optional, Type, overload

from .. import models
from .._errors import CommandFailed, CommandTooLong, ExecutionTimeout, SandboxdError, termination_reason
from .._lifecycle import CallFailed, Handler, Handlers, Paused, Resumed, Started, Terminated
from .._request import Duration, checked_id, given, key_headers, milliseconds, run_headers, seconds, shown, time_text
from .._retry import Safety
from .._settings import resolve
from .._tool import tool_text
from . import _platform
from ._background import ToolText
from ._code import AsyncCodeContexts, CodeOutput, ContextOrId, OnException, OnResult, OnText, run_code
from ._context import AsyncSandboxContext, Recorder
from ._events import AsyncEvents, Time
from ._executions import AsyncExecution, AsyncExecutions
from ._files import AsyncFiles
from ._network import AsyncNetwork
from ._payload import json_payload
from ._ports import AsyncPorts
from ._snapshots import SnapshotOrId, roll_back, take_snapshot
from ._stream import AsyncOutputStream, OnLine, completed, failed
from ._terminal import AsyncTerminal
from ._transport import AsyncTransport, Call

TIMEOUT = 60.0
"""The time limit of a command without one, as the service has it."""
DELETED = "deleted"
_DEFAULTS: "_platform.Defaults[AsyncTransport]" = _platform.Defaults()


class AsyncSandbox:
    """A sandbox. As a context manager, it is terminated at the end of the block."""

    def __init__(self, context: AsyncSandboxContext, view: Optional[models.Sandbox] = None) -> None:
        self.id = context.id
        """The identifier."""
        self.files = AsyncFiles(context)
        self.ports = AsyncPorts(context)
        self.events = AsyncEvents(context.transport, context)
        self.network = AsyncNetwork(context)
        self.executions = AsyncExecutions(context)
        self.contexts = AsyncCodeContexts(context)
        self.context = context
        """What the parts of the object share; for other modules of the SDK."""
        self._view = view

    @classmethod
    def create(
        cls,
        image: str,
        *,
        cpu: Optional[int] = None,
        memory_mb: Optional[int] = None,
        disk_mb: Optional[int] = None,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[str] = None,
        timeout: Optional[Duration] = None,
        on_timeout: Optional[models.OnTimeout] = None,
        auto_resume: Optional[bool] = None,
        idle_timeout: Optional[Duration] = None,
        metadata: Optional[Mapping[str, str]] = None,
        egress: Optional[Mapping[str, Any]] = None,
        ingress: Optional[Mapping[str, Any]] = None,
        isolation: Optional[str] = None,
        cold: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
        wait: bool = True,
        run: Optional[Recorder] = None,
        on: Optional[Mapping[str, Handler]] = None,
    ) -> _platform.Opening[AsyncSandbox]:
        """
        Creates a sandbox, with a client whose settings come from the environment or from the local daemon. The parameters are
        those of `AsyncSandboxes.create`.
        """
        body = create_body(
            image,
            cpu=cpu,
            memory_mb=memory_mb,
            disk_mb=disk_mb,
            env=env,
            workdir=workdir,
            timeout=timeout,
            on_timeout=on_timeout,
            auto_resume=auto_resume,
            idle_timeout=idle_timeout,
            metadata=metadata,
            egress=egress,
            ingress=ingress,
            isolation=isolation,
            cold=cold,
        )
        return _platform.opening(create_sandbox(None, body, idempotency_key, wait, run, on))

    @classmethod
    def connect(cls, sandbox_id: str) -> AsyncSandbox:
        """An object for a sandbox, with the same client. Sends no request, so the sandbox need not exist."""
        return sandbox_handle(None, sandbox_id)

    @property
    def view(self) -> Optional[models.Sandbox]:
        """The state as of the last create or refresh. Sends no request."""
        return self._view

    async def refresh(self) -> models.Sandbox:
        """Fetches the current state."""
        call = Call("GET", self.context.path(), Safety.REPEATABLE)
        self._view = await self.context.json(call, models.Sandbox.from_json)
        return self._view

    async def execute(
        self,
        command: str,
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        timeout: Optional[Duration] = None,
        auto_resume: Optional[bool] = None,
        run_id: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        check: bool = False,
        killed_on_cancel: Optional[bool] = None,
    ) -> models.ExecutionResult:
        """
        Runs a bash command line and returns its result. A failed command is a result, too; `check` makes it an error. The command
        is killed after `timeout`, by default 60 seconds. `user` is a name in the sandbox's `/etc/passwd`, by default root.

        With `idempotency_key`, a request with the same key within 24 hours, from any process, returns the first result.
        `killed_on_cancel` sends no key: the service kills the command when the connection ends, for example because the asyncio
        task is cancelled, and a lost response is an error. Without it, the request is retried with a key of its own. Default:
        true for asyncio without an `idempotency_key`, otherwise false.
        """
        is_killed = killed_on_cancel
        if is_killed is None:
            is_killed = _platform.KILLED_ON_CANCEL and idempotency_key is None
        has_key = idempotency_key is not None or not is_killed
        call = Call(
            "POST",
            self.context.path("/execute"),
            Safety.COMMAND if has_key else Safety.ONLY_UNSTARTED,
            json_payload(_command_body(command, cwd, env, user, stdin, timeout, auto_resume)),
            key_headers(idempotency_key) if has_key else {},
            timeout=(TIMEOUT if timeout is None else seconds(timeout)) + self.context.transport.settings.timeout,
        )
        text = shown(command)
        self.context.record("exec.started", command=text)
        try:
            result = await self.context.in_run(call, run_id, models.ExecutionResult.from_json)
        except SandboxdError as error:
            failed(self.context, text, error)
            raise
        completed(self.context, text, result)
        if check and result.exit_code != 0:
            raise CommandFailed(text, result)
        return result

    def stream(
        self,
        command: str,
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        timeout: Optional[Duration] = None,
        auto_resume: Optional[bool] = None,
        run_id: Optional[str] = None,
        line_ends: bool = False,
        on_stdout: Optional[OnLine] = None,
        on_stderr: Optional[OnLine] = None,
    ) -> AsyncOutputStream:
        """
        Runs a bash command line and delivers its output line by line: `Stdout`, `Stderr`, and `Done` at the end. Closing the
        stream earlier kills the command. With `line_ends`, the concatenation of the lines is the output as written. The callbacks
        get the lines that are read.
        """
        path = self.context.path("/execute", lineEnds=line_ends or None)
        body = json_payload(_command_body(command, cwd, env, user, stdin, timeout, auto_resume))
        call = Call("POST", path, Safety.ONLY_UNSTARTED, body, accept="text/event-stream")
        return AsyncOutputStream(
            self.context,
            call,
            command,
            run_id=run_id,
            line_ends=line_ends,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
        )

    async def start(
        self,
        command: str,
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        open_stdin: Optional[bool] = None,
        timeout: Optional[Duration] = None,
        auto_resume: Optional[bool] = None,
        run_id: Optional[str] = None,
        idempotency_key: Optional[str] = None,
    ) -> AsyncExecution:
        """
        Starts a detached command, which continues without its client and has no time limit by default. `open_stdin` keeps standard
        input open for `write_stdin`.
        """
        body = _command_body(command, cwd, env, user, stdin, timeout, auto_resume)
        body = {**body, **given(detached=True, openStdin=open_stdin)}
        return await self._started("/execute", body, run_id, idempotency_key)

    async def run_code(
        self,
        code: str,
        *,
        language: Optional[str] = None,
        context: Optional[ContextOrId] = None,
        env: Optional[Mapping[str, str]] = None,
        timeout: Optional[Duration] = None,
        auto_resume: Optional[bool] = None,
        run_id: Optional[str] = None,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        on_result: Optional[OnResult] = None,
        on_exception: Optional[OnException] = None,
    ) -> models.CodeExecution:
        """
        Runs code in the code interpreter, which the image must have: in a context, or in the default context of the `language`
        (`python`, `javascript`, `bash`, or another kernel of the image). A context keeps its state. What the code raises is part
        of the outcome. The code is interrupted after `timeout`, by default 60 seconds, and when the call is cancelled.

        The callbacks get the output as it appears.
        """
        return await run_code(
            self.context,
            code,
            language=language,
            in_context=context,
            env=env,
            timeout=timeout,
            auto_resume=auto_resume,
            run_id=run_id,
            output=CodeOutput(on_stdout, on_stderr, on_result, on_exception),
        )

    def terminal(
        self,
        *,
        cols: Optional[int] = None,
        rows: Optional[int] = None,
        command: Optional[str] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        timeout: Optional[Duration] = None,
        auto_resume: Optional[bool] = None,
        run_id: Optional[str] = None,
        idempotency_key: Optional[str] = None,
    ) -> _platform.Opening[AsyncTerminal]:
        """Opens a terminal of 80 columns and 24 rows, by default with an interactive bash, and attaches to it."""
        limit = milliseconds(timeout)
        body = given(cols=cols, rows=rows, command=command, cwd=cwd, user=user, timeoutMs=limit, autoResume=auto_resume)
        if env is not None:
            body["env"] = dict(env)
        return _platform.opening(self._terminal(body, run_id, idempotency_key, auto_resume))

    def as_tool(self, *, timeout: Optional[Duration] = None) -> Callable[[str], ToolText]:
        """
        A function `shell(command)` that runs a command and returns its output as text, with the types and the docstring from which
        frameworks for agents make a tool. A command that fails or takes longer than `timeout` is a result; other errors are raised.
        """

        async def shell(command: str) -> str:
            """Runs a bash command line in an isolated Linux sandbox and returns its output. Files persist between calls.

            Args:
                command: The bash command line.
            """
            try:
                result = await self.execute(command, timeout=timeout)
                return tool_text(result, TIMEOUT if timeout is None else seconds(timeout))
            except (ExecutionTimeout, CommandTooLong) as error:
                return str(error)

        return shell

    async def pause(self, *, hibernate: bool = False) -> models.PauseResult:
        """
        Pauses the sandbox: freezes all its processes. With `hibernate` they are stored on the host's disk, where they need no
        memory and survive a reboot, also those of a paused sandbox. The next command, file operation or port request wakes them.
        """
        body = json_payload({"hibernate": True}) if hibernate else None
        call = Call("POST", self.context.path("/pause"), Safety.AFTER_ANSWER, body)
        paused = await self.context.json(call, models.PauseResult.from_json)
        self.context.record("sandbox.paused", runtimeDurationMs=paused.runtime_duration_ms)
        self.context.handlers.notify(Paused(paused.runtime_duration_ms))
        return paused

    async def resume(self, *, cold: bool = False, adopt: bool = False) -> models.ResumeResult:
        """
        Resumes the sandbox. Commands resume it automatically. With `cold`, its processes end, frozen or stored, and it starts
        again on its disk. With `adopt`, a hibernated sandbox of a lost host continues on this one.
        """
        given = {name: True for name, value in (("cold", cold), ("adopt", adopt)) if value}
        body = json_payload(given) if given else None
        call = Call("POST", self.context.path("/resume"), Safety.AFTER_ANSWER, body)
        resumed = await self.context.json(call, models.ResumeResult.from_json)
        self.context.record("sandbox.resumed", pausedDurationMs=resumed.paused_duration_ms)
        self.context.handlers.notify(Resumed(resumed.paused_duration_ms))
        return resumed

    async def metrics(
        self, *, start: Optional[Time] = None, end: Optional[Time] = None
    ) -> List[models.ResourceSample]:
        """
        Returns the samples of CPU, memory and disk from `start` to `end`, oldest first. A running sandbox is sampled about every
        5 seconds.
        """
        path = self.context.path("/metrics", start=time_text(start), end=time_text(end))
        return (await self.context.json(Call("GET", path, Safety.REPEATABLE), models.ResourceMetrics.from_json)).data

    async def set_timeout(self, timeout: Duration) -> models.Sandbox:
        """Changes the timeout, which then counts from now, or from the resume of a paused sandbox. 0 ends it now."""
        body = json_payload({"timeoutMs": milliseconds(timeout)})
        call = Call("PUT", self.context.path("/timeout"), Safety.REPEATABLE, body)
        self._view = await self.context.json(call, models.Sandbox.from_json)
        return self._view

    async def snapshot(
        self,
        name: Optional[str] = None,
        *,
        metadata: Optional[Mapping[str, str]] = None,
        memory: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
    ) -> models.Snapshot:
        """
        Takes a snapshot of the disk. Its id can be the `image` of a create, also after this sandbox is terminated. Several
        snapshots can have the same `name`. `metadata`: tags, by which lists can be filtered. `memory` stores the processes and
        their memory, too; `info` returns which backends can.
        """
        return await take_snapshot(self.context, name, metadata, memory, idempotency_key)

    async def rollback(self, snapshot: SnapshotOrId) -> models.Sandbox:
        """
        Ends all processes, replaces the disk by that of a snapshot of this sandbox, and starts the sandbox again. If the snapshot
        has processes, they continue. A rollback whose response is lost is not retried.
        """
        self._view = await roll_back(self.context, snapshot)
        return self._view

    async def fork(
        self,
        count: int = 1,
        *,
        env: Optional[Mapping[str, str]] = None,
        metadata: Optional[Mapping[str, str]] = None,
        memory: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
    ) -> List[AsyncSandbox]:
        """
        Creates `count` sandboxes with the configuration of this one and a copy of its disk: all of them, or none. They run new
        processes, or with `memory` continue copies of the processes. `env` is added to the variables of this sandbox; `metadata` replaces its tags. The run of this object records
        their events, too.

        A cancelled fork terminates the new sandboxes like a cancelled create, unless the caller gave an `idempotency_key`.
        """
        body = given(
            count=count,
            env=None if env is None else dict(env),
            metadata=None if metadata is None else dict(metadata),
            memory=memory,
        )
        headers = key_headers(idempotency_key)
        call = Call("POST", self.context.path("/fork"), Safety.REPEATABLE, json_payload(body), headers)
        views: List[models.Sandbox] = []
        try:
            views = (await self.context.json(call, models.ForkList.from_json)).data
            self.context.record("sandbox.forked", sandboxIds=[view.id for view in views])
            return [_started_sandbox(self.context.transport, view, self.context.run, Handlers()) for view in views]
        except BaseException as error:
            # Without a key of the caller, only this call can find the sandboxes.
            if idempotency_key is None and (views or isinstance(error, _platform.CANCELLED)):
                transport = self.context.transport
                undo = partial(_undo_fork, transport, call, [view.id for view in views])
                await transport.cleanups.run("terminating the sandboxes of a cancelled fork", undo)
            raise

    async def terminate(self) -> Terminated:
        """
        Terminates the sandbox and deletes its files. If the response of the first attempt is lost and the retry finds the sandbox
        terminated, the call succeeds; its running time is then unknown.
        """
        call = Call("DELETE", self.context.path(), Safety.REPEATABLE)
        try:
            result = await self.context.in_run(call, None, models.TerminateResult.from_json)
            end = Terminated(DELETED, result.total_runtime_ms, result.terminated_at)
        except SandboxdError as error:
            if error.repeats == 0 or termination_reason(error) != DELETED:
                self.context.report(error)
                raise
            end = Terminated(DELETED)
        self.context.ended(end)
        return end

    @overload
    def on(self, name: Literal["started"], handler: Callable[[Started], object]) -> Callable[[], None]: ...
    @overload
    def on(self, name: Literal["paused"], handler: Callable[[Paused], object]) -> Callable[[], None]: ...
    @overload
    def on(self, name: Literal["resumed"], handler: Callable[[Resumed], object]) -> Callable[[], None]: ...
    @overload
    def on(self, name: Literal["terminated"], handler: Callable[[Terminated], object]) -> Callable[[], None]: ...
    @overload
    def on(self, name: Literal["failed"], handler: Callable[[CallFailed], object]) -> Callable[[], None]: ...

    def on(self, name: str, handler: Handler) -> Callable[[], None]:
        """
        Calls `handler` on each event `started`, `paused`, `resumed`, `terminated` or `failed` that this object causes or observes.
        Returns a function that removes the handler.
        """
        return self.context.handlers.add(name, handler)

    def with_run(self, run: Optional[Recorder]) -> AsyncSandbox:
        """Records what this object does in `run`."""
        self.context.run = run
        return self

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self.context.is_terminated:
            return
        try:
            await self.terminate()
        except SandboxdError as failure:
            # Its lifetime may have ended meanwhile. An error of the block is more useful than one of the clean-up.
            if termination_reason(failure) is None and error is None:
                raise

    async def _terminal(
        self, body: Dict[str, Any], run_id: Optional[str], key: Optional[str], auto_resume: Optional[bool]
    ) -> AsyncTerminal:
        execution = await self._started("/terminals", body, run_id, key)
        return await execution.attach(auto_resume=auto_resume)

    async def _started(
        self, path: str, body: Dict[str, Any], run_id: Optional[str], key: Optional[str]
    ) -> AsyncExecution:
        call = Call("POST", self.context.path(path), Safety.COMMAND, json_payload(body), key_headers(key))
        try:
            view = await self.context.in_run(call, run_id, models.Execution.from_json)
        except SandboxdError as error:
            self.context.report(error)
            raise
        return AsyncExecution(self.context, view.execution_id, view)


def _command_body(
    command: str,
    cwd: Optional[str],
    env: Optional[Mapping[str, str]],
    user: Optional[str],
    stdin: Optional[str],
    timeout: Optional[Duration],
    auto_resume: Optional[bool],
) -> Dict[str, Any]:
    limit = milliseconds(timeout)
    body = given(command=command, cwd=cwd, user=user, stdin=stdin, timeoutMs=limit, autoResume=auto_resume)
    return body if env is None else {**body, "env": dict(env)}


def create_body(
    image: str,
    *,
    cpu: Optional[int],
    memory_mb: Optional[int],
    disk_mb: Optional[int],
    env: Optional[Mapping[str, str]],
    workdir: Optional[str],
    timeout: Optional[Duration],
    on_timeout: Optional[models.OnTimeout],
    auto_resume: Optional[bool],
    idle_timeout: Optional[Duration],
    metadata: Optional[Mapping[str, str]],
    egress: Optional[Mapping[str, Any]],
    ingress: Optional[Mapping[str, Any]],
    isolation: Optional[str],
    cold: Optional[bool],
) -> Dict[str, Any]:
    """The body of a create request."""
    return given(
        image=image,
        env=None if env is None else dict(env),
        workdir=workdir,
        timeoutMs=milliseconds(timeout),
        onTimeout=on_timeout,
        autoResume=auto_resume,
        idleTimeoutMs=milliseconds(idle_timeout),
        metadata=None if metadata is None else dict(metadata),
        resources=given(cpu=cpu, memoryMb=memory_mb, diskMb=disk_mb) or None,
        network=given(egress=egress, ingress=ingress) or None,
        isolation=isolation,
        cold=cold,
    )


async def create_sandbox(
    transport: Optional[AsyncTransport],
    body: Dict[str, Any],
    key: Optional[str],
    is_patient: bool,
    run: Optional[Recorder],
    handlers: Optional[Mapping[str, Handler]],
) -> AsyncSandbox:
    """
    Creates a sandbox, by default with the client of the environment. If the call is cancelled, or fails after the sandbox exists, the
    sandbox is terminated.
    """
    transport = transport or default_transport()
    headers = {**key_headers(key), **run_headers(None if run is None else run.id)}
    call = Call(
        "POST", "/v1/sandboxes", Safety.REPEATABLE, json_payload(body), headers, is_impatient=not is_patient
    )
    # An invalid handler is refused before a sandbox exists.
    checked = Handlers()
    checked.add_all(handlers or {})
    view: Optional[models.Sandbox] = None
    try:
        view = await transport.json(call, models.Sandbox.from_json)
        return _started_sandbox(transport, view, run, checked)
    except BaseException as error:
        # Without a key of the caller, only this call can find the sandbox.
        if key is None and (view is not None or isinstance(error, _platform.CANCELLED)):
            sandbox_id = None if view is None else view.id
            undo = partial(_undo, transport, call, sandbox_id)
            await transport.cleanups.run("terminating the sandbox of a cancelled create", undo)
        raise


async def _undo(transport: AsyncTransport, create: Call, sandbox_id: Optional[str]) -> None:
    """Terminates the sandbox of a create. If its id is unknown, a request with the same idempotency key returns it."""
    if sandbox_id is None:
        view = await transport.json(replace(create, is_impatient=True), models.Sandbox.from_json)
        sandbox_id = view.id
    await sandbox_handle(transport, sandbox_id).terminate()


async def _undo_fork(transport: AsyncTransport, fork: Call, sandbox_ids: List[str]) -> None:
    """The same for the sandboxes of a fork. If one cannot be terminated, the others are."""
    if not sandbox_ids:
        forks = await transport.json(replace(fork, is_impatient=True), models.ForkList.from_json)
        sandbox_ids = [view.id for view in forks.data]
    failures: List[SandboxdError] = []
    for sandbox_id in sandbox_ids:
        try:
            await sandbox_handle(transport, sandbox_id).terminate()
        except SandboxdError as error:
            if termination_reason(error) is None:
                failures.append(error)
    if failures:
        raise failures[0]


def _started_sandbox(
    transport: AsyncTransport, view: models.Sandbox, run: Optional[Recorder], handlers: Handlers
) -> AsyncSandbox:
    """The object of a new sandbox. Reports that it was created and runs."""
    context = AsyncSandboxContext(transport, view.id, run)
    context.handlers = handlers
    context.record("sandbox.created", image=view.image, state=str(view.state))
    context.record("sandbox.started")
    context.handlers.notify(Started())
    return AsyncSandbox(context, view)


def sandbox_handle(transport: Optional[AsyncTransport], sandbox_id: str) -> AsyncSandbox:
    """An object for a sandbox."""
    checked = checked_id("sandbox_id", "sb_", sandbox_id)
    return AsyncSandbox(AsyncSandboxContext(transport or default_transport(), checked))


def default_transport() -> AsyncTransport:
    """The client of the environment."""
    return _DEFAULTS.get() or _DEFAULTS.put(AsyncTransport(resolve()))
