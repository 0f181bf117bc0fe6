"""Streams of output and of events over lost connections."""

from __future__ import annotations

import json
import threading
from typing import Any, Dict, List

import pytest

from sandboxd import AsyncSandbox, AsyncSandboxd, Done, NetworkError, Stderr, Stdout
from scripted import DONE, SANDBOX, CuttingProxy, Handler, Received, Service, answer, events, failure, hang_up


def sandbox_of(service: Service) -> AsyncSandbox:
    return AsyncSandboxd(**service.settings).sandboxes.connect(SANDBOX)


async def test_output_is_a_sequence_of_lines_and_its_end() -> None:
    seen: List[str] = []
    with Service([events(f"event: stdout\ndata: one\n\nevent: stderr\ndata: two\n\n{DONE}")]) as service:
        stream = sandbox_of(service).stream("x", on_stderr=seen.append)
        outputs = [output async for output in stream]
        assert outputs[:2] == [Stdout("one"), Stderr("two")]
        assert isinstance(outputs[2], Done) and outputs[2].duration_ms == 5 and len(outputs) == 3
        assert seen == ["two"] and stream.request_id == "req_s"
        assert service.received[0].headers["accept"] == "text/event-stream"
        assert "idempotency-key" not in service.received[0].headers
        assert json.loads(service.received[0].body) == {"command": "x"}


async def endless(closed: threading.Event) -> Any:
    def respond(_: Received, handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b"event: stdout\ndata: one\n\n")
        handler.wfile.flush()
        # The client never sends more, so this returns when it closes the connection.
        handler.connection.settimeout(10)
        if handler.rfile.read(1) == b"":
            closed.set()
        handler.close_connection = True

    return respond


async def test_a_stream_that_is_dropped_or_closed_closes_its_connection() -> None:
    for how in ("drop", "close", "block"):
        closed = threading.Event()
        with Service(await endless(closed)) as service:
            stream = sandbox_of(service).stream("yes")
            if how == "block":
                async with stream:
                    assert await stream.__anext__() == Stdout("one")
            else:
                assert await stream.__anext__() == Stdout("one")
            if how == "close":
                await stream.close()
                assert [output async for output in stream] == []
            del stream
            for _ in range(200):
                if closed.is_set():
                    break
                await pause()
            assert closed.is_set(), how


async def pause() -> None:
    from sandboxd._async._platform import sleep

    await sleep(0.02)


async def test_an_interrupted_stream_is_an_error_and_is_not_repeated() -> None:
    with Service([events("event: stdout\ndata: one\n\n", ends=False), events(DONE)]) as service:
        with pytest.raises(NetworkError):
            await sandbox_of(service).stream("x").done()
        assert len(service.received) == 1


async def test_line_ends_are_restored() -> None:
    text = "event: stdout\ndata: a\ndata: b\nend: crlf\n\nevent: stdout\ndata: c\nend: none\n\n" + DONE
    with Service([events(text)]) as service:
        stream = sandbox_of(service).stream("x", line_ends=True)
        lines = [output.line async for output in stream if isinstance(output, Stdout)]
        assert "".join(lines) == "a\rb\r\nc"
        assert service.received[0].path.endswith("/execute?lineEnds=true")


async def test_a_carriage_return_inside_a_line_stays_without_line_ends_too() -> None:
    # The service answers `printf 'a\rb\r\nc\rd'` with these events.
    text = "event: stdout\ndata: a\ndata: b\n\nevent: stdout\ndata: c\ndata: d\n\n" + DONE
    with Service(events(text)) as service:
        sandbox = sandbox_of(service)
        for stream in (sandbox.stream("x"), sandbox.executions.handle("ex_1").follow()):
            outputs = [output async for output in stream]
            assert outputs[:2] == [Stdout("a\rb"), Stdout("c\rd")]


async def test_10_000_lines_arrive_once_over_20_broken_connections() -> None:
    total = 10_000

    def respond(received: Received, handler: Handler) -> None:
        first = int(received.headers.get("last-event-id", 0)) + 1
        lines = (f"event: stdout\ndata: {line}\nid: {line}\n\n" for line in range(first, total + 1))
        events("".join(lines) + DONE)(received, handler)

    # The proxy cuts anywhere, also within events.
    with Service(respond) as service, CuttingProxy(service.port, cuts=20, after_bytes=15_000) as proxy:
        client = AsyncSandboxd(**{**service.settings, "url": f"http://127.0.0.1:{proxy.port}"})
        execution = client.sandboxes.connect(SANDBOX).executions.handle("ex_1")
        outputs = [output async for output in execution.follow()]
        assert [int(each.line) for each in outputs if isinstance(each, Stdout)] == list(range(1, total + 1))
        assert isinstance(outputs[-1], Done) and proxy.cut == 20
        await client.close()


async def test_a_stream_that_ended_has_nothing_more_after_its_end() -> None:
    def respond(_: Received, handler: Handler) -> None:
        handler.send_response(204)
        handler.end_headers()

    with Service(respond) as service:
        execution = sandbox_of(service).executions.handle("ex_1")
        assert [output async for output in execution.follow(after="end")] == []


async def test_followed_output_ends_with_errors_that_do_not_pass() -> None:
    from sandboxd import ExecutionNotFound

    with Service([hang_up, failure(404, "EXECUTION_NOT_FOUND")]) as service:
        with pytest.raises(ExecutionNotFound):
            await sandbox_of(service).executions.handle("ex_1").follow().__anext__()


def event_id(number: int) -> str:
    return f"ev_{number:016}"


def event(number: int) -> Dict[str, Any]:
    fixed = {"type": "exec.started", "timestamp": "t", "sandboxId": SANDBOX, "runId": "", "data": {}}
    return {"id": event_id(number), **fixed}


def sent(number: int) -> str:
    return f"id: {event_id(number)}\ndata: {json.dumps(event(number))}\n\n"


async def test_followed_events_are_neither_missed_nor_repeated_and_end_with_the_sandbox() -> None:
    gone = failure(404, "SANDBOX_NOT_FOUND", {"state": "terminated", "reason": "deleted"})
    pagination = {"limit": 100, "offset": 0, "total": 1, "hasMore": False}
    responders = [
        events(f"id: {event_id(1)}\n\n{sent(2)}", ends=False),
        events(sent(2) + sent(3), ends=False),
        hang_up,
        gone,
        gone,
        answer(200, {"data": [event(4)], "pagination": pagination}),
    ]
    with Service(responders) as service:
        stream = sandbox_of(service).events.follow(kinds=["exec.*"])
        assert [each.id async for each in stream] == [event_id(2), event_id(3), event_id(4)]
        after = [each.headers.get("last-event-id") for each in service.received]
        assert after == [None, event_id(2), event_id(3), event_id(3), None, None]
        assert f"sandboxId={SANDBOX}" in service.received[5].path
        assert f"after={event_id(3)}" in service.received[5].path


async def test_an_event_stream_can_be_closed_while_it_is_idle() -> None:
    closed = threading.Event()

    def respond(_: Received, handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(f"id: {event_id(1)}\n\n".encode())
        handler.wfile.flush()
        handler.connection.settimeout(10)
        if handler.rfile.read(1) == b"":
            closed.set()
        handler.close_connection = True

    with Service(respond) as service:
        stream = await sandbox_of(service).events.follow().start()
        assert stream.last_event_id == event_id(1)
        await stream.close()
        assert [each async for each in stream] == []
        assert closed.wait(5)
