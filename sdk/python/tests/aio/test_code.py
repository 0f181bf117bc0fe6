"""Running code: buffered, streamed to callbacks, and with faults."""

from __future__ import annotations

import json
from typing import Any, List

import pytest

from sandboxd import (
    AsyncSandbox,
    AsyncSandboxd,
    CodeContext,
    CodeException,
    CodeResult,
    ContextNotFound,
    ExecutionError,
    InvalidArgument,
    NetworkError,
)
from scripted import SANDBOX, Service, answer, events, failure

RESULT = {"text": "2", "isMainResult": True}
RAISED = {"name": "ValueError", "value": "v", "traceback": "t"}
END = {"executionCount": 1, "contextId": "c1", "durationMs": 5}
OUTCOME = {"stdout": "out\n", "stderr": "", "results": [RESULT], "exception": None, **END}


def sandbox_of(service: Service) -> AsyncSandbox:
    return AsyncSandboxd(**service.settings).sandboxes.connect(SANDBOX)


def stream(*parts: Any, ends: bool = True) -> Any:
    text = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in parts)
    return events(text, ends=ends)


async def test_code_has_an_outcome() -> None:
    with Service([answer(200, OUTCOME)]) as service:
        context = CodeContext(context_id="c1", language="python", cwd="/")
        execution = await sandbox_of(service).run_code("1 + 1", context=context, env={"A": "1"}, timeout=2.5)
        assert (execution.stdout, execution.exception, execution.duration_ms) == ("out\n", None, 5)
        assert [result.text for result in execution.results] == ["2"] and execution.results[0].is_main_result
        request = service.received[0]
        sent = {"code": "1 + 1", "contextId": "c1", "env": {"A": "1"}, "timeoutMs": 2500}
        assert (request.path, json.loads(request.body)) == (f"/v1/sandboxes/{SANDBOX}/code", sent)
        assert "idempotency-key" not in request.headers


async def test_callbacks_get_the_output_as_it_appears() -> None:
    parts = [("stdout", {"text": "a"}), ("stderr", {"text": "b"}), ("result", RESULT), ("later", {"x": 1})]
    seen: List[Any] = []
    with Service([stream(*parts, ("stdout", {"text": "c"}), ("exception", RAISED), ("done", END))]) as service:
        execution = await sandbox_of(service).run_code(
            "x", on_stdout=seen.append, on_stderr=seen.append, on_result=seen.append, on_exception=seen.append
        )
        assert service.received[0].headers["accept"] == "text/event-stream"
        raised = CodeException.from_json(RAISED)
        assert seen == ["a", "b", CodeResult.from_json(RESULT), "c", raised]
        assert (execution.stdout, execution.stderr, execution.exception) == ("ac", "b", raised)
        assert len(execution.results) == 1 and execution.context_id == "c1"
        assert execution.output_truncated is None and execution.text == "2"


async def test_the_outcome_says_that_output_was_omitted() -> None:
    with Service([stream(("done", {**END, "outputTruncated": True}))]) as service:
        execution = await sandbox_of(service).run_code("x", on_stdout=print)
        assert execution.output_truncated is True


async def test_an_error_of_a_callback_is_the_callers() -> None:
    def fails(_: str) -> None:
        raise KeyError("mine")

    with Service([stream(("stdout", {"text": "a"}), ("done", END))]) as service:
        with pytest.raises(KeyError, match="mine"):
            await sandbox_of(service).run_code("x", on_stdout=fails)


async def test_a_stream_that_breaks_is_an_error_and_is_not_repeated() -> None:
    error = {"code": "EXECUTION_ERROR", "message": "m", "details": {}}
    for responder, expected in (
        (stream(("stdout", {"text": "a"}), ends=False), NetworkError),
        (stream(("stdout", {"text": "a"})), NetworkError),
        (events("event: result\ndata: [1]\n\n"), NetworkError),
        (events("event: stdout\ndata: {\n\n"), NetworkError),
        (stream(("error", error)), ExecutionError),
    ):
        with Service([responder]) as service:
            with pytest.raises(expected):
                await sandbox_of(service).run_code("x", on_stdout=print)
            assert len(service.received) == 1


async def test_contexts_are_created_listed_restarted_and_removed() -> None:
    view = {"contextId": "c1", "language": "bash", "cwd": "/"}
    removed = {"contextId": "c1", "removed": True}
    with Service([answer(201, view), answer(200, {"data": [view]}), answer(200, view), answer(200, removed)]) as service:
        contexts = sandbox_of(service).contexts
        context = await contexts.create("bash", cwd="/")
        assert await contexts.list() == [context]
        assert await contexts.restart(context) == context
        await contexts.remove("c1")
        paths = [f"{each.method} {each.path.partition('/code')[2]}" for each in service.received]
        assert paths == ["POST /contexts", "GET /contexts", "POST /contexts/c1/restart", "DELETE /contexts/c1"]


async def test_the_id_of_a_context_cannot_lead_elsewhere() -> None:
    with Service([failure(404, "CONTEXT_NOT_FOUND")]) as service:
        contexts = sandbox_of(service).contexts
        for wrong in ("", "../c1", "c1?x", "c 1"):
            with pytest.raises(InvalidArgument):
                await contexts.remove(wrong)
        with pytest.raises(ContextNotFound):
            await contexts.remove("c2")
        assert len(service.received) == 1
