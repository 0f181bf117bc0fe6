"""Commands: command lines and lists, long time limits, failures and their reasons."""

from __future__ import annotations

import json
import pickle
import time
from typing import Any, Dict, List

import pytest

from sandboxd import (
    AsyncSandbox,
    AsyncSandboxd,
    CommandFailed,
    ExecutionTimeout,
    InvalidArgument,
    NetworkError,
    SandboxNotFound,
)
from sandboxd._async import _following, _long_command
from sandboxd._async._run import AsyncRun
from scripted import DONE, EXECUTION, RESULT, SANDBOX, Handler, Received, Responder, Service, answer, events, failure, hang_up, silence

FAILED: Dict[str, Any] = {**RESULT, "exitCode": 2, "stdout": "collected 3 items\n", "stderr": "E  assert 1 == 2\n"}


def sandbox_of(service: Service, **settings: Any) -> AsyncSandbox:
    return AsyncSandboxd(**{**service.settings, **settings}).sandboxes.connect(SANDBOX)


async def test_a_list_is_quoted_for_bash() -> None:
    with Service([answer(200, RESULT), answer(201, EXECUTION), events(DONE)]) as service:
        sandbox = sandbox_of(service)
        await sandbox.execute(["echo", "two words", "$HOME", "it's"])
        await sandbox.start(["sleep", "1"])
        await sandbox.stream(["A=1", "true"]).done()
        commands = [json.loads(received.body)["command"] for received in service.received]
        assert commands == ["echo 'two words' '$HOME' 'it'\"'\"'s'", "sleep 1", "'A=1' true"]


async def test_a_list_that_bash_cannot_run_is_refused_before_it_is_sent() -> None:
    wrong: List[Any] = [[], ["sleep", 1], ["echo", None], [b"echo"], ["a\0b"], 1, None, b"true", {"a": 1}]
    with Service([]) as service:
        sandbox = sandbox_of(service)
        for command in wrong:
            with pytest.raises(InvalidArgument, match="command") as caught:
                await sandbox.execute(command)
            assert caught.value.details == {"argument": "command"}
            with pytest.raises(InvalidArgument):
                await sandbox.start(command)
            with pytest.raises(InvalidArgument):
                sandbox.stream(command)
        assert service.received == []


async def test_a_failed_command_has_the_end_of_its_standard_error() -> None:
    with Service([answer(200, FAILED), answer(200, {**FAILED, "stderr": ""}), answer(200, {**FAILED, "stdout": "", "stderr": ""})]) as service:
        sandbox = sandbox_of(service)
        with pytest.raises(CommandFailed) as caught:
            await sandbox.execute("pytest", check=True)
        assert str(caught.value) == "exit code 2: pytest (COMMAND_FAILED); stderr ends with:\nE  assert 1 == 2"
        assert caught.value.stderr == "E  assert 1 == 2"
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        # Many programs report errors on standard output.
        with pytest.raises(CommandFailed, match="stdout ends with:\ncollected 3 items$"):
            await sandbox.execute("pytest", check=True)
        with pytest.raises(CommandFailed, match=r"exit code 2: pytest \(COMMAND_FAILED\)$"):
            await sandbox.execute("pytest", check=True)


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (
            {"exitCode": None, "signal": "SIGKILL", "reason": "timeout", "message": "the command was killed at its timeoutMs of 5"},
            "killed by SIGKILL: the command was killed at its timeoutMs of 5",
        ),
        ({"exitCode": 137, "signal": None, "reason": "oom"}, "exit code 137: oom"),
        ({"exitCode": None, "signal": "SIGTERM"}, "killed by SIGTERM"),
        ({"exitCode": 9, "signal": None, "reason": "solar_flare", "message": "the sun"}, "exit code 9: the sun"),
        ({"exitCode": None, "signal": None}, "it could not start"),
    ],
)
async def test_a_result_says_why_the_command_was_killed(end: Dict[str, Any], text: str) -> None:
    kinds: List[Any] = []
    with Service([answer(200, {**RESULT, **end})]) as service:
        run = AsyncRun("r")
        run.on_event(lambda event: kinds.append(event.data.get("reason")))
        with pytest.raises(CommandFailed) as caught:
            await sandbox_of(service).with_run(run).execute("x", check=True)
    reason = end.get("reason")
    assert caught.value.message == f"{text}: x" and caught.value.result.reason == reason == kinds[-1]
    assert caught.value.details["reason"] == reason


def page(stdout: str, stderr: str, following: str, *, more: bool = False, dropped: bool = False) -> Responder:
    state = "running" if more else "exited"
    fields = {"stdout": stdout, "stderr": stderr, "next": following, "more": more, "state": state, "dropped": dropped}
    return answer(200, fields)


async def test_the_output_is_all_that_is_stored() -> None:
    with Service([page("a", "b", "1.1", more=True), page("c", "d", "2.2")]) as service:
        output = await sandbox_of(service).executions.handle("ex_1").output()
        assert (output.stdout, output.stderr, output.more, output.next) == ("ac", "bd", False, "2.2")
        assert service.received[1].path.endswith("/output?after=1.1")


def long_done(**end: Any) -> str:
    fields = {"exitCode": 0, "signal": None, "durationMs": 400_000, **end}
    return f"event: done\nid: end\ndata: {json.dumps(fields)}\n\n"


async def test_a_command_with_a_long_time_limit_runs_detached() -> None:
    kinds: List[str] = []
    # The connection is lost once.
    responders: List[Responder] = [
        answer(201, EXECUTION),
        page("one\n", "two\n", "4.4", more=True),
        hang_up,
        page("three\nfour", "", "14.4"),
        events(long_done()),
    ]
    with Service(responders) as service:
        run = AsyncRun("r1")
        run.on_event(lambda event: kinds.append(event.type))
        sandbox = sandbox_of(service).with_run(run)
        result = await sandbox.execute("make", timeout="90m", cwd="/src", env={"A": "1"}, user="u", stdin="in")
        assert (result.stdout, result.stderr) == ("one\nthree\nfour", "two\n")
        assert (result.exit_code, result.signal, result.duration_ms, result.reason) == (0, None, 400_000, None)
        assert result.stdout_truncated is None and result.stderr_truncated is None
        start, first, second, _, end = service.received
        assert json.loads(start.body) == {
            **{"command": "make", "cwd": "/src", "user": "u", "stdin": "in", "env": {"A": "1"}},
            **{"timeoutMs": 5_400_000, "detached": True},
        }
        assert start.path.endswith("/execute") and start.headers["x-run-id"] == "r1"
        assert first.path.endswith("/output") and second.path.endswith("/output?after=4.4")
        assert end.headers["last-event-id"] == "14.4"
    assert kinds == ["exec.started", "exec.completed"]


@pytest.mark.parametrize("timeout, is_detached", [(None, False), (300, False), ("5m", False), (300.1, True), ("301s", True)])
async def test_only_commands_that_the_service_does_not_wait_for_run_detached(timeout: Any, is_detached: bool) -> None:
    def respond(received: Received, handler: Any) -> None:
        is_start = received.method == "POST" and json.loads(received.body).get("detached") is True
        response = answer(201, EXECUTION) if is_start else answer(200, RESULT)
        is_stream = received.headers["accept"] == "text/event-stream"
        end = events(long_done()) if is_stream else page("", "", "0.0")
        (end if received.method == "GET" else response)(received, handler)

    with Service(respond) as service:
        await sandbox_of(service).execute("x", timeout=timeout)
        assert len(service.received) == (3 if is_detached else 1)


async def test_a_long_command_that_fails_or_does_not_start_is_a_result_or_an_error() -> None:
    missing = {**EXECUTION, "state": "exited", "message": "no directory /src"}
    killed = long_done(exitCode=None, signal="SIGKILL", reason="timeout", message="its time limit was reached")
    not_started = long_done(exitCode=None)
    responders: List[Responder] = [answer(201, EXECUTION), page("one\nthree\n", "two\n", "10.4"), events(killed)]
    responders += [answer(201, EXECUTION), page("", "", "0.0"), events(not_started), answer(200, missing)]
    with Service(responders) as service:
        sandbox = sandbox_of(service)
        with pytest.raises(CommandFailed, match="its time limit was reached: make") as caught:
            await sandbox.execute("make", timeout=600, check=True)
        assert caught.value.result.stdout == "one\nthree\n" and caught.value.stderr == "two"
        assert caught.value.result.message == "its time limit was reached"
        result = await sandbox.execute("make", timeout=600, cwd="/src")
        assert (result.exit_code, result.stderr, result.message) == (None, "no directory /src", "no directory /src")


async def test_a_command_that_does_not_start_says_why_in_its_message() -> None:
    why = "/nope is no directory"
    end = {"exitCode": None, "signal": None}
    done = json.dumps({"durationMs": 1, **end})
    responders: List[Responder] = [answer(200, {**RESULT, **end, "stderr": text}) for text in (f"a warning\n{why}\n", "")]
    responders += [events(f"event: stderr\ndata: {why}\nid: 1\n\nevent: done\ndata: {done}\nid: end\n\n"), answer(200, RESULT)]
    with Service(responders) as service:
        sandbox = sandbox_of(service)
        result = await sandbox.execute("ls", cwd="/nope")
        assert (result.exit_code, result.message, result.reason) == (None, why, None)
        assert (await sandbox.execute("ls", cwd="/nope")).message is None
        assert (await sandbox.stream("ls", cwd="/nope").done()).message == why
        assert (await sandbox.execute("ls")).message is None


async def test_long_output_keeps_its_beginning_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_long_command, "LONGEST_OUTPUT", 20)
    lines = page("".join(f"line {number}\n" for number in range(10)), "", "70.0")
    dropped = page("x", "", "100.0", dropped=True)
    with Service([answer(201, EXECUTION), lines, events(long_done())]) as service:
        result = await sandbox_of(service).execute("x", timeout=600)
        assert result.stdout == "line 0\nlin\n[... 50 characters are missing here ...]\n 8\nline 9\n"
        assert result.stdout_truncated is True and result.stderr_truncated is None
    with Service([answer(201, EXECUTION), dropped, events(long_done())]) as service:
        result = await sandbox_of(service).execute("x", timeout=600)
        assert result.stdout_truncated is True


async def test_an_error_of_a_long_command_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_following, "LONGEST_AWAY", 0.0)
    gone = failure(404, "SANDBOX_NOT_FOUND", {"state": "terminated", "reason": "timeout"})
    seen: List[str] = []
    kinds: List[str] = []
    with Service([answer(201, EXECUTION), gone, gone, answer(201, EXECUTION), *[hang_up] * 9]) as service:
        run = AsyncRun("r")
        run.on_event(lambda event: kinds.append(event.type))
        sandbox = sandbox_of(service).with_run(run)
        sandbox.on("failed", lambda event: seen.append(type(event.error).__name__))
        for _ in range(2):
            with pytest.raises(SandboxNotFound):
                await sandbox.execute("x", timeout=600)
        assert seen == ["SandboxNotFound"] * 2
        assert kinds.count("exec.error") == 2 and kinds.count("sandbox.terminated") == 1
        with pytest.raises(NetworkError):
            await sandbox.execute("x", timeout=600)


async def test_a_wait_can_check_the_exit_code() -> None:
    running = {**EXECUTION, "outputEnd": "3.0"}
    ended = {**EXECUTION, "state": "exited", "endedAt": "t", "durationMs": 7, "outputEnd": "200000.70000"}
    failed = {**ended, "exitCode": 2, "command": "make"}
    killed = {**ended, "exitCode": 137, "command": "make", "reason": "oom", "message": "the limit is 2048 MB"}
    output = {"stdout": "last", "stderr": "why", "next": "200000.70000", "more": False, "state": "exited", "dropped": False}
    responders = [
        *[answer(200, running), answer(200, {**ended, "exitCode": 0})],
        *[answer(200, failed), answer(200, output)],
        *[answer(200, failed)],
        *[answer(200, failed), failure(403, "FORBIDDEN")],
        *[answer(200, killed), answer(200, output)],
    ]
    with Service(responders) as service:
        execution = sandbox_of(service).executions.handle("ex_1")
        assert (await execution.wait(check=True)).exit_code == 0
        with pytest.raises(CommandFailed, match="exit code 2: make") as caught:
            await execution.wait(check=True)
        result = caught.value.result
        assert (result.stdout, caught.value.stderr, result.duration_ms) == ("last", "why", 7)
        assert result.stdout_truncated is True
        assert service.received[-1].path.endswith("/output?after=134464.4464")
        assert (await execution.wait()).exit_code == 2
        # The command failed, also if its output cannot be read.
        with pytest.raises(CommandFailed, match="exit code 2: make"):
            await execution.wait(check=True)
        with pytest.raises(CommandFailed, match="exit code 137: the limit is 2048 MB: make") as caught:
            await execution.wait(check=True)
        assert (caught.value.result.reason, caught.value.stderr) == ("oom", "why")


async def test_a_wait_has_a_time_limit_after_which_the_command_continues() -> None:
    running, ended = answer(200, EXECUTION), answer(200, {**EXECUTION, "endedAt": "t", "exitCode": 0})
    seen: List[object] = []
    with Service([running, silence(1), silence(1), running, running, ended]) as service:
        sandbox = sandbox_of(service)
        sandbox.on("failed", seen.append)
        execution = sandbox.executions.handle("ex_1")
        begin = time.monotonic()
        with pytest.raises(ExecutionTimeout, match="not ended within 0.3 s, and continues") as caught:
            await execution.wait(timeout="300ms")
        assert 0.2 < time.monotonic() - begin < 1.5
        assert caught.value.details == {"executionId": "ex_1"}
        with pytest.raises(ExecutionTimeout):
            await execution.wait(timeout=0)
        assert (await execution.wait(timeout=5)).exit_code == 0
        with pytest.raises(InvalidArgument, match="timeout is 'soon'"):
            await execution.wait(timeout="soon")
        # The sandbox has not failed, and nothing ended the command.
        assert seen == [] and {received.method for received in service.received} == {"GET"}


async def test_kill_is_another_name_of_cancel() -> None:
    with Service([answer(200, EXECUTION)]) as service:
        await sandbox_of(service).executions.handle("ex_1").kill(auto_resume=False)
        assert service.received[0].method == "DELETE"
        assert service.received[0].path.endswith("/executions/ex_1?autoResume=false")
