"""One sandbox."""

from __future__ import annotations

import inspect
import logging
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from types import TracebackType
from typing import Any, Callable, Dict, List, Literal, Optional, Type, Union, cast, overload

from .. import models
from .._bodies import ImageOrId, Texts, command_body, create_body, mapping
from .._command import Command, command_line
from .._errors import (
    CommandFailed,
    CommandTooLong,
    ExecutionTimeout,
    SandboxdError,
    argument_error,
    termination_reason,
)
from .._how_it_ended import not_started
from .._lifecycle import CallFailed, Handler, Handlers, LifecycleHandlers, Paused, Resumed, Started, Terminated
from .._lifetime import early_end
from .._names import OtherNames, made_by, other_keywords
from .._policies import CreateEgress, CreateIngress
from .._request import checked_sandbox, given, key_headers, run_headers, shown, time_text
from .._retry import Safety
from .._settings import resolve
from .._tool import code_text, tool_text
from .._units import Duration, Size, milliseconds, seconds
from . import _platform
from ._background import ToolText
from ._code import AsyncCodeContexts, CodeOutput, ContextOrId, OnException, OnResult, OnText, run_code
from ._context import AsyncSandboxContext, Recorder
from ._events import AsyncEvents, Time
from ._executions import AsyncExecution, AsyncExecutions
from ._files import AsyncFiles
from ._long_command import LONGEST_ATTACHED, run_long
from ._network import AsyncNetwork
from ._payload import json_payload
from ._ports import AsyncPorts
from ._snapshots import SnapshotOrId, roll_back, take_snapshot
from ._stream import AsyncOutputStream, OnLine, completed, failed
from ._terminal import AsyncTerminal
from ._termination import clean_up, terminate, undo_create, undo_fork
from ._transport import AsyncTransport, Call, is_cut_off

TIMEOUT = 60.0
"""The time limit of a command without one, as the service has it."""
_MADE_BY = "create(image) makes a sandbox, and connect(sandbox_id) an object for an existing one"
_LOG = logging.getLogger("sandboxd")
_DEFAULTS: "_platform.Defaults[AsyncTransport]" = _platform.Defaults()


class AsyncSandbox(OtherNames):
    """
    A sandbox. As a context manager, it is terminated at the end of the block. `execute` runs commands, and its parts have the rest:
    `files`, `ports`, `network`, `events`, `executions` and `contexts`.

        with Sandbox.create("ubuntu:24.04") as sandbox:
            sandbox.files.write("hello.txt", "hello")
            print(sandbox.execute("cat hello.txt").stdout)
    """

    @made_by(_MADE_BY)
    def __init__(self, context: AsyncSandboxContext, view: Optional[models.Sandbox] = None) -> None:
        # The caller may have ignored the type.
        if isinstance(cast(object, context), str):
            raise argument_error("context", f"{type(self).__name__} is not called with a text: {_MADE_BY}")
        self._files = AsyncFiles(context)
        self._ports = AsyncPorts(context)
        self._events = AsyncEvents(context.transport, context)
        self._network = AsyncNetwork(context)
        self._executions = AsyncExecutions(context)
        self._contexts = AsyncCodeContexts(context)
        self.context = context
        """What the parts of the object share; for other modules of the SDK."""
        if view is not None:
            context.view = view
        self._warned_of: Optional[str] = None

    @property
    def files(self) -> AsyncFiles:
        """Its files: reading, writing, listing and watching them, and copying directories."""
        return self._files

    @property
    def ports(self) -> AsyncPorts:
        """Its exposed ports, each with a URL."""
        return self._ports

    @property
    def events(self) -> AsyncEvents:
        """What has happened to it."""
        return self._events

    @property
    def network(self) -> AsyncNetwork:
        """Its network policy, and the traffic."""
        return self._network

    @property
    def executions(self) -> AsyncExecutions:
        """Its detached commands and terminals."""
        return self._executions

    @property
    def contexts(self) -> AsyncCodeContexts:
        """The contexts of its code interpreter, for `run_code`."""
        return self._contexts

    @property
    def id(self) -> str:
        """The identifier; the name, if the object was made with it and has not fetched the identifier yet."""
        return self.context.id

    def __repr__(self) -> str:
        state = "" if self.view is None else f", state={self.view.state!r}, image={self.view.image!r}"
        return f"{type(self).__name__}({self.id!r}{state})"

    @classmethod
    @other_keywords
    def create(
        cls,
        image: ImageOrId,
        *,
        cpu: Optional[int] = None,
        memory: Optional[Size] = None,
        memory_mb: Optional[int] = None,
        disk: Optional[Size] = None,
        disk_mb: Optional[int] = None,
        env: Optional[Texts] = None,
        workdir: Optional[str] = None,
        timeout: Optional[Duration] = None,
        on_timeout: Optional[Literal["terminate", "pause"]] = None,
        auto_resume: Optional[bool] = None,
        idle_timeout: Optional[Duration] = None,
        name: Optional[str] = None,
        metadata: Optional[Texts] = None,
        egress: Optional[CreateEgress] = None,
        ingress: Optional[CreateIngress] = None,
        isolation: Optional[str] = None,
        cold: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
        wait: Union[bool, Duration] = True,
        run: Optional[Recorder] = None,
        on: Optional[LifecycleHandlers] = None,
    ) -> _platform.Opening[AsyncSandbox]:
        """
        Creates a sandbox and returns it when it runs. In a `with` statement it is terminated at the end of the block. The client
        has the settings of the environment, or those of the local daemon.

        - `image`: the name of an image or a template, the id of a snapshot or a template, or a `Snapshot` or `Template`.
          From a snapshot the sandbox has the files, and not the `env`, `workdir`, `metadata` or `egress` of the other sandbox.
        - `cpu`: 2, 4 or 8 vCPUs. Default: 2.
        - `memory`, `disk`: MB as a number, or a text with a unit such as `"4g"`. Default: 4 GB of memory, a disk of 10 GB. The
          arguments `memory_mb` and `disk_mb` are the same, only as numbers.
        - `env`: environment variables of all commands. `workdir`: their working directory. Default: `/workspace`.
        - `timeout`: the running time, not counting pauses, at whose end `on_timeout` happens: `terminate` (default) or `pause`.
          Seconds as a number, a text such as `"90m"`, or a `timedelta`. Default: 5 minutes.
        - `auto_resume`: with False, commands, files and ports do not resume the sandbox while it is paused.
        - `idle_timeout`: pauses the sandbox after this time without activity; 0 disables it. Default: 2 minutes.
        - `name`: accepted in place of the id, as by `connect`. The create fails if another sandbox of the account that is not
          terminated has it.
        - `metadata`: tags, by which lists can be filtered.
        - `egress`: the policy for outgoing connections, such as `{"allow": ["example.com"]}`. A list `allow` denies the rest, unless
          `default` is `allow`; so does `allowNetworks` without `denyNetworks`. Default: all public addresses are allowed.
        - `ingress`: the policy for exposed ports, such as `{"allowPorts": [8080]}`. Default: all ports may be exposed.
        - `isolation`: `container`, `gvisor`, or `auto` (default) for the operator's choice.
        - `cold`: starts without the processes of the snapshot.
        - `idempotency_key`: a request with the same key within 24 hours, from any process, returns the same sandbox.
        - `wait`: how long the call waits in all while the service refuses it, because of a rate limit, without capacity, or while the
          image is being pulled: a duration, or True for the client's `max_retry_wait`. With False the call fails at the
          first refusal, which takes up to 25 s while an image is being pulled.
        - `run`: records the events of the sandbox in this `Run`.
        - `on`: handlers of lifecycle events by name: `started`, `paused`, `resumed`, `terminated`, `failed`.

        Cancelling the asyncio task, or interrupting a blocking call with Ctrl-C, terminates the sandbox, unless the caller gave
        an `idempotency_key`.
        """
        body = create_body(
            image,
            cpu=cpu,
            memory=memory,
            memory_mb=memory_mb,
            disk=disk,
            disk_mb=disk_mb,
            env=env,
            workdir=workdir,
            timeout=timeout,
            on_timeout=on_timeout,
            auto_resume=auto_resume,
            idle_timeout=idle_timeout,
            name=name,
            metadata=metadata,
            egress=egress,
            ingress=ingress,
            isolation=isolation,
            cold=cold,
        )
        return _platform.opening(create_sandbox(None, body, idempotency_key, wait, run, on))

    @classmethod
    def connect(cls, sandbox_id: str) -> AsyncSandbox:
        """
        An object for a sandbox, by its id or its name, with the same client. Sends no request, so the sandbox need not exist. With a
        name each call is for the sandbox that has it at that time, until `refresh` fetches the id.
        """
        return sandbox_handle(None, sandbox_id)

    @property
    def view(self) -> Optional[models.Sandbox]:
        """
        The state as of the last create, refresh or change, also by `pause`, `resume` and `terminate`. Sends no request: what others
        change, and that a command has resumed the sandbox, is known after `refresh`.
        """
        return self.context.view

    async def refresh(self) -> models.Sandbox:
        """Fetches the current state."""
        call = Call("GET", self.context.path(), Safety.REPEATABLE)
        view = self.context.view = await self.context.json(call, models.Sandbox.from_json)
        self.context.id = view.id
        return view

    @other_keywords
    async def execute(
        self,
        command: Command,
        *,
        cwd: Optional[str] = None,
        env: Optional[Texts] = None,
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
        Runs a command, waits for its end and returns its result: `stdout`, `stderr`, `exit_code`, and `signal` and `reason` if it was
        killed. `exit_code` is None if it was killed or could not start, as without its `cwd` or `user`; `message` says why.

        - `command`: a bash command line, or a list of a program and its arguments, which are quoted for bash.
        - `cwd`: the working directory. Default: that of the sandbox.
        - `env`: environment variables, added to those of the sandbox.
        - `user`: a name in the sandbox's `/etc/passwd`. Default: `root`.
        - `stdin`: text for standard input. Default: empty.
        - `timeout`: the time after which the command and all its processes are killed: seconds, a text such as `"90m"`, or a
          `timedelta`, at most 24 hours. There is always one: without it, or with None, 60 seconds. A command with more than 5 minutes
          runs detached, and its output is collected, for which the key needs the scope `read`, too. The `timeout` of the sandbox also ends its commands: the logger
          `sandboxd` warns if `view` says that it ends before.
        - `auto_resume`: with False, the call fails if the sandbox is paused, instead of resuming it.
        - `run_id`: the run to which the command belongs. Default: that of this object.
        - `idempotency_key`: a request with the same key within 24 hours, from any process, returns the first result.
        - `check`: raises `CommandFailed` unless the command exits with 0. By default, a failed command is a result, too.
        - `killed_on_cancel`: sends no key: the service kills the command when the connection ends, for example because the asyncio
          task is cancelled, and a lost response is an error. Without it, the request is retried with a key of its own. Default: True
          for asyncio without an `idempotency_key`, otherwise False.
        """
        body = command_body(command, cwd, env, user, stdin, timeout, auto_resume)
        limit = TIMEOUT if timeout is None else seconds(timeout)
        self._warn_of_end(timeout)
        is_killed = killed_on_cancel
        if is_killed is None:
            is_killed = _platform.KILLED_ON_CANCEL and idempotency_key is None
        text = shown(body["command"])
        self.context.record("exec.started", command=text)
        try:
            if limit > LONGEST_ATTACHED:
                result = await run_long(self.context, body, run_id, idempotency_key, is_killed=is_killed)
            else:
                has_key = idempotency_key is not None or not is_killed
                call = Call(
                    "POST",
                    self.context.path("/execute"),
                    Safety.COMMAND if has_key else Safety.ONLY_UNSTARTED,
                    json_payload(body),
                    key_headers(idempotency_key) if has_key else {},
                    timeout=limit + self.context.transport.settings.timeout,
                )
                result = await self.context.in_run(call, run_id, models.ExecutionResult.from_json)
        except SandboxdError as error:
            failed(self.context, text, error)
            raise
        if result.message is None:
            result = replace(result, message=not_started(result, result.stderr))
        completed(self.context, text, result)
        if check and result.exit_code != 0:
            raise CommandFailed(text, result)
        return result

    @other_keywords
    def stream(
        self,
        command: Command,
        *,
        cwd: Optional[str] = None,
        env: Optional[Texts] = None,
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
        Runs a command and delivers its output line by line: `Stdout`, `Stderr`, and `Done` at the end. Closing the stream earlier
        kills the command. The command starts when the stream is read or entered, and not before: a stream that is only created runs
        nothing. A line arrives when it ends, or with the end of the output: a prompt such as `Name: ` is not delivered while the
        program waits, and Python prints through a buffer unless `env` has `PYTHONUNBUFFERED=1`. For dialogues use `start`, whose `output` has it, or `terminal`.

        - `command`, `cwd`, `env`, `user`, `stdin`, `auto_resume`, `run_id`: those of `execute`.
        - `timeout`: the time after which the command is killed, at most 5 minutes. There is always one: without it, or with None,
          60 seconds. `start` has no such limit.
        - `line_ends`: lines have their ends, so that their concatenation is the output as written.
        - `on_stdout`, `on_stderr`: are called with the lines that are read, for example by `stream(command, on_stdout=print).done()`.
        """
        line = command_line(command)
        if timeout is not None and seconds(timeout) > LONGEST_ATTACHED:
            raise argument_error("timeout", f"timeout is {timeout!r}; a stream allows at most 5 minutes: use start() and follow()")
        path = self.context.path("/execute", lineEnds=line_ends or None)
        body = json_payload(command_body(line, cwd, env, user, stdin, timeout, auto_resume))
        call = Call("POST", path, Safety.ONLY_UNSTARTED, body, accept="text/event-stream")
        self._warn_of_end(timeout)
        return AsyncOutputStream(
            self.context,
            call,
            line,
            run_id=run_id,
            line_ends=line_ends,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
        )

    @other_keywords
    async def start(
        self,
        command: Command,
        *,
        cwd: Optional[str] = None,
        env: Optional[Texts] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        open_stdin: Optional[bool] = None,
        timeout: Optional[Duration] = None,
        reader_timeout: Optional[Duration] = None,
        auto_resume: Optional[bool] = None,
        run_id: Optional[str] = None,
        idempotency_key: Optional[str] = None,
    ) -> AsyncExecution:
        """
        Starts a detached command, which continues without its client, and returns its execution.

        - `command`, `cwd`, `env`, `user`, `stdin`, `auto_resume`, `run_id`: those of `execute`.
        - `open_stdin`: keeps standard input open after `stdin`, for `write_stdin`. `follow` delivers whole lines only: prompts are
          in `output`, or use `terminal`.
        - `timeout`: the time after which the command is killed, at most 24 hours. Default: as long as the sandbox lives. The logger
          `sandboxd` warns if `view` says that the sandbox ends before.
        - `reader_timeout`: how long the command waits for a reader when its stored output is full and nobody reads it. Then the
          oldest output is dropped. Default: 2 minutes.
        - `idempotency_key`: a request with the same key within 24 hours, from any process, returns the same execution.
        """
        body = command_body(command, cwd, env, user, stdin, timeout, auto_resume)
        reader_timeout_ms = milliseconds(reader_timeout, "reader_timeout")
        body = {**body, **given(detached=True, openStdin=open_stdin, readerTimeoutMs=reader_timeout_ms)}
        self._warn_of_end(timeout)
        return await self._started("/execute", body, run_id, idempotency_key)

    @other_keywords
    async def run_code(
        self,
        code: str,
        *,
        language: Optional[str] = None,
        context: Optional[ContextOrId] = None,
        env: Optional[Texts] = None,
        timeout: Optional[Duration] = None,
        auto_resume: Optional[bool] = None,
        run_id: Optional[str] = None,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        on_result: Optional[OnResult] = None,
        on_exception: Optional[OnException] = None,
    ) -> models.CodeExecution:
        """
        Runs `code` in the code interpreter, which the image must have, and returns its outcome. What the code raises is part of it.
        Cancelling the call interrupts the code.

        - `language`: `python` (default), `javascript`, `bash`, or another kernel of the image.
        - `context`: one of `contexts`, which keeps its state. Default: the default context of the `language`.
        - `env`: environment variables of the code.
        - `timeout`: the time after which the code is interrupted, at most 5 minutes. There is always one: without it, or with None,
          60 seconds. Start a longer program with `start`; it shares files with the code, and no variables.
        - `auto_resume`, `run_id`: those of `execute`.
        - `on_stdout`, `on_stderr`, `on_result`, `on_exception`: get the output as it appears.
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
        env: Optional[Texts] = None,
        user: Optional[str] = None,
        timeout: Optional[Duration] = None,
        auto_resume: Optional[bool] = None,
        run_id: Optional[str] = None,
        idempotency_key: Optional[str] = None,
    ) -> _platform.Opening[AsyncTerminal]:
        """
        Opens a terminal and attaches to it. It continues when its client disconnects.

        - `cols`, `rows`: its size. Default: 80 columns and 24 rows.
        - `command`: a bash command line. Default: an interactive bash.
        - `timeout`: the time after which it is killed, at most 24 hours. Default: as long as the sandbox lives.
        - `cwd`, `env`, `user`, `auto_resume`, `run_id`: those of `execute`.
        - `idempotency_key`: a request with the same key within 24 hours, from any process, returns the same terminal.
        """
        limit = milliseconds(timeout)
        body = given(cols=cols, rows=rows, command=command, cwd=cwd, user=user, timeoutMs=limit, autoResume=auto_resume)
        body.update(given(env=mapping("env", env)))
        return _platform.opening(self._terminal(body, run_id, idempotency_key, auto_resume))

    def as_tool(self, *, timeout: Optional[Duration] = None) -> Callable[[str], ToolText]:
        """
        A function `shell(command)` that runs a command and returns its output as text, with the types and the docstring from which
        frameworks for agents make a tool. A command that fails or takes longer than `timeout` is a result; other errors are raised.
        """

        async def shell(command: str) -> str:
            """Runs a bash command line in an isolated Linux sandbox and returns its output. Files persist between calls; the
            working directory and variables do not.

            Args:
                command: The bash command line.
            """
            try:
                result = await self.execute(command, timeout=timeout)
                return tool_text(result, TIMEOUT if timeout is None else seconds(timeout))
            except (ExecutionTimeout, CommandTooLong) as error:
                return str(error)

        # Frameworks show it to the model as it is, and before Python 3.13 it has the indentation of the source.
        shell.__doc__ = inspect.getdoc(shell)
        return shell

    def as_code_tool(self, *, timeout: Optional[Duration] = None) -> Callable[[str], ToolText]:
        """
        As `as_tool`, a function `python(code)` that runs Python code with `run_code`: variables persist between calls. The image must
        have the code interpreter, as `code-interpreter` has. `timeout` is that of `run_code`. What the code raises is part of the text; figures are not.
        """

        async def python(code: str) -> str:
            """Runs Python code in an isolated Linux sandbox and returns what it prints and the value of its last expression.
            Variables, imports and files persist between calls.

            Args:
                code: The Python code.
            """
            try:
                return code_text(await self.run_code(code, timeout=timeout))
            except ExecutionTimeout as error:
                return str(error)

        python.__doc__ = inspect.getdoc(python)
        return python

    async def pause(self, *, hibernate: bool = False) -> models.PauseResult:
        """
        Pauses the sandbox: freezes all its processes. With `hibernate` they are stored on the host's disk, where they need no
        memory and survive a reboot, also those of a paused sandbox. The next command, file operation or port request wakes them.
        Without `hibernate`, a sandbox that is paused already is the error `InvalidState`.
        """
        body = json_payload({"hibernate": True}) if hibernate else None
        call = Call("POST", self.context.path("/pause"), Safety.AFTER_ANSWER, body)
        paused = await self.context.json(call, models.PauseResult.from_json)
        self.context.changed_state(paused.state, paused_at=paused.paused_at)
        self.context.record("sandbox.paused", runtimeDurationMs=paused.runtime_duration_ms)
        self.context.handlers.notify(Paused(paused.runtime_duration_ms))
        if hibernate:
            # The response does not say when they were stored.
            await self.refresh()
        return paused

    async def resume(self, *, cold: bool = False, adopt: bool = False) -> models.ResumeResult:
        """
        Resumes the sandbox. Commands resume it automatically. With `cold`, its processes end, frozen or stored, and it starts
        again on its disk. With `adopt`, a hibernated sandbox of a lost host continues on this one. A sandbox that runs is the error
        `InvalidState`.
        """
        given = {name: True for name, value in (("cold", cold), ("adopt", adopt)) if value}
        body = json_payload(given) if given else None
        call = Call("POST", self.context.path("/resume"), Safety.AFTER_ANSWER, body)
        resumed = await self.context.json(call, models.ResumeResult.from_json)
        self.context.changed_state(resumed.state)
        self.context.record("sandbox.resumed", pausedDurationMs=resumed.paused_duration_ms)
        self.context.handlers.notify(Resumed(resumed.paused_duration_ms))
        return resumed

    async def metrics(
        self, *, start: Optional[Time] = None, end: Optional[Time] = None
    ) -> List[models.ResourceSample]:
        """
        Returns the samples of CPU, memory and disk from `start` to `end`, oldest first. A running sandbox is sampled about every
        5 seconds. A time is a `datetime`, or a text in ISO 8601 format.
        """
        path = self.context.path("/metrics", start=time_text(start), end=time_text(end))
        return (await self.context.json(Call("GET", path, Safety.REPEATABLE), models.ResourceMetrics.from_json)).data

    async def set_timeout(self, timeout: Duration) -> models.Sandbox:
        """Changes the timeout, which then counts from now, or from the resume of a paused sandbox. 0 ends it now."""
        body = json_payload({"timeoutMs": milliseconds(timeout)})
        call = Call("PUT", self.context.path("/timeout"), Safety.REPEATABLE, body)
        view = self.context.view = await self.context.json(call, models.Sandbox.from_json)
        return view

    @other_keywords
    async def snapshot(
        self,
        name: Optional[str] = None,
        *,
        metadata: Optional[Texts] = None,
        memory: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
    ) -> models.Snapshot:
        """
        Takes a snapshot of the disk. Its id can be the `image` of a create, also after this sandbox is terminated. The snapshot has
        no configuration: give the create `env`, `workdir`, `metadata` and `egress` again. Without `egress` its network is open.

        - `name`: several snapshots can have the same. `metadata`: tags, by which lists can be filtered.
        - `memory`: stores the processes and their memory, too; `info` returns which backends can.
        - `idempotency_key`: a request with the same key within 24 hours, from any process, returns the same snapshot.
        """
        return await take_snapshot(self.context, name, metadata, memory, idempotency_key)

    async def rollback(self, snapshot: SnapshotOrId) -> models.Sandbox:
        """
        Ends all processes, replaces the disk by that of a snapshot of this sandbox, and starts the sandbox again. A name means
        the newest snapshot of the sandbox with it. If the snapshot has processes, they continue. A rollback whose response is lost is not retried.
        """
        view = self.context.view = await roll_back(self.context, snapshot)
        return view

    @other_keywords
    async def fork(
        self,
        count: int = 1,
        *,
        env: Optional[Texts] = None,
        name: Optional[str] = None,
        metadata: Optional[Texts] = None,
        memory: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
    ) -> List[AsyncSandbox]:
        """
        Creates `count` sandboxes with the configuration of this one and a copy of its disk: all of them, or none. The run of this
        object records their events, too.

        - `env`: added to the variables of this sandbox. `metadata`: replaces its tags.
        - `name`: that of the new sandbox, if `count` is 1. Without it a fork has no name.
        - `memory`: continues copies of the processes. Without it the forks run new processes. Copies have the same state of random
          generators, such as those of `random` and numpy: seed them again in each fork if it should differ from the others.
        - `idempotency_key`: a request with the same key within 24 hours, from any process, returns the same sandboxes.

        A cancelled fork terminates the new sandboxes like a cancelled create, unless the caller gave an `idempotency_key`.
        """
        body = given(
            count=count,
            env=mapping("env", env),
            name=name,
            metadata=mapping("metadata", metadata),
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
            is_unknown = is_cut_off(error) and call.progress.may_have_effect
            if idempotency_key is None and (views or is_unknown):
                transport = self.context.transport
                undo = partial(undo_fork, transport, call, [view.id for view in views])
                await transport.cleanups.run("terminating the sandboxes of a cancelled fork", undo)
            raise

    async def terminate(self) -> Terminated:
        """
        Terminates the sandbox and deletes its files. If the response of the first attempt is lost and the retry finds the sandbox
        terminated, the call succeeds; its running time is then unknown. Later calls of the same object return the result of the first one
        without a request. An object that was made with a name, and has not fetched the id, sends a request each time.
        """
        return await terminate(self.context)

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
            await clean_up(self.context)
        except SandboxdError as failure:
            # Its lifetime may have ended meanwhile.
            if termination_reason(failure) is not None:
                return
            # An error of the block is more useful than one of the clean-up.
            if error is None:
                raise
            _LOG.warning("the sandbox %s was not terminated: %s", self.id, failure)

    def _warn_of_end(self, timeout: Optional[Duration]) -> None:
        """Warns, once for each known end, that the sandbox ends before the timeout of a command."""
        view = self.view
        if view is None or timeout is None or view.expires_at == self._warned_of:
            return
        warning = early_end(view, seconds(timeout), datetime.now(timezone.utc))
        if warning is not None:
            self._warned_of = view.expires_at
            _LOG.warning("%s", warning)

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


async def create_sandbox(
    transport: Optional[AsyncTransport],
    body: Dict[str, Any],
    key: Optional[str],
    wait: Union[bool, Duration],
    run: Optional[Recorder],
    handlers: Optional[LifecycleHandlers],
) -> AsyncSandbox:
    """
    Creates a sandbox, by default with the client of the environment. If the call is cancelled, or fails after the sandbox exists, the
    sandbox is terminated.
    """
    transport = transport or default_transport()
    headers = {**key_headers(key), **run_headers(None if run is None else run.id)}
    call = Call("POST", "/v1/sandboxes", Safety.REPEATABLE, json_payload(body), headers)
    if wait is False:
        call = replace(call, waits_for=frozenset())
    elif wait is not True:
        call = replace(call, max_wait=seconds(wait, "wait"))
    # An invalid handler is refused before a sandbox exists.
    checked = Handlers()
    checked.add_all(handlers or {})
    view: Optional[models.Sandbox] = None
    try:
        view = await transport.json(call, models.Sandbox.from_json)
        return _started_sandbox(transport, view, run, checked)
    except BaseException as error:
        # Without a key of the caller, only this call can find the sandbox.
        is_unknown = is_cut_off(error) and call.progress.may_have_effect
        if key is None and (view is not None or is_unknown):
            sandbox_id = None if view is None else view.id
            undo = partial(undo_create, transport, call, sandbox_id)
            await transport.cleanups.run("terminating the sandbox of a cancelled create", undo)
        raise


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
    """An object for a sandbox, by its id or its name."""
    checked = checked_sandbox("sandbox_id", sandbox_id)
    return AsyncSandbox(AsyncSandboxContext(transport or default_transport(), checked))


def default_transport() -> AsyncTransport:
    """The client of the environment."""
    return _DEFAULTS.get() or _DEFAULTS.put(AsyncTransport(resolve()))
