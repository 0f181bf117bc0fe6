"""Cancelled tasks close their connections, and leave neither tasks nor threads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from sandboxd import AsyncSandboxd, EventStream, NetworkError, Sandboxd
from scripted import RESULT, SANDBOX, Handler, Received, Service, answer


class Waiting:
    """Responds to nothing, and notices when the client closes the connection."""

    def __init__(self, head: bytes = b"") -> None:
        self.began = threading.Event()
        self.closed = threading.Event()
        self._head = head

    def __call__(self, _: Received, handler: Handler) -> None:
        if self._head:
            handler.send_response(200)
            handler.end_headers()
            handler.wfile.write(self._head)
            handler.wfile.flush()
        self.began.set()
        handler.connection.settimeout(10)
        if handler.rfile.read(1) == b"":
            self.closed.set()
        handler.close_connection = True


async def until(event: threading.Event) -> None:
    for _ in range(250):
        if event.is_set():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("too late")


@pytest.mark.parametrize("how", ["execute", "stream", "follow", "events", "read"])
async def test_a_cancelled_call_closes_its_connection(how: str) -> None:
    waiting = Waiting(b"" if how == "execute" else b": comment\n\n")

    async def call(client: AsyncSandboxd) -> Any:
        sandbox = client.sandboxes.connect(SANDBOX)
        if how == "execute":
            return await sandbox.execute("sleep 1000")
        if how == "stream":
            return await sandbox.stream("sleep 1000").done()
        if how == "follow":
            return await sandbox.executions.handle("ex_1").follow().__anext__()
        if how == "events":
            return await sandbox.events.follow().__anext__()
        return await sandbox.files.read("f")

    with Service(waiting) as service:
        async with AsyncSandboxd(**service.settings) as client:
            task = asyncio.ensure_future(call(client))
            await until(waiting.began)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(waiting.closed)
        assert len(service.received) == 1 and "idempotency-key" not in service.received[0].headers


async def test_a_stream_can_be_closed_by_another_task() -> None:
    waiting = Waiting(b"event: stdout\ndata: one\n\n")
    with Service(waiting) as service:
        async with AsyncSandboxd(**service.settings) as client:
            stream = client.sandboxes.connect(SANDBOX).stream("x")
            await stream.__anext__()
            task = asyncio.ensure_future(stream.__anext__())
            await asyncio.sleep(0.1)
            await stream.close()
            with pytest.raises(StopAsyncIteration):
                await task
            await until(waiting.closed)


def test_an_event_stream_can_be_closed_by_another_thread() -> None:
    waiting = Waiting(b"id: ev_0000000000000001\n\n")
    with Service(waiting) as service, Sandboxd(**service.settings) as client:
        stream = client.events.follow().start()
        seen = []

        def read(stream: EventStream) -> None:
            seen.extend(stream)

        reader = threading.Thread(target=read, args=(stream,))
        reader.start()
        reader.join(0.2)
        assert reader.is_alive()
        stream.close()
        reader.join(5)
        assert not reader.is_alive() and seen == [] and waiting.closed.wait(5)


async def test_hundreds_of_calls_at_once_do_not_wait_for_connections() -> None:
    with Service(answer(200, RESULT)) as service:
        async with AsyncSandboxd(**{**service.settings, "timeout": 60, "retries": 0}) as client:
            sandbox = client.sandboxes.connect(SANDBOX)
            waiting = [sandbox.execute("x") for _ in range(300)]
            assert len(await asyncio.gather(*waiting)) == 300


def test_threads_can_share_a_client() -> None:
    errors = []
    with Service(answer(200, RESULT)) as service, Sandboxd(**service.settings) as client:
        sandbox = client.sandboxes.connect(SANDBOX)

        def use() -> None:
            try:
                for _ in range(20):
                    assert sandbox.execute("x").stdout == "hi\n"
            except (NetworkError, AssertionError) as error:
                errors.append(error)

        threads = [threading.Thread(target=use) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []


def test_each_event_loop_has_its_own_default_client(monkeypatch: pytest.MonkeyPatch) -> None:
    from sandboxd import AsyncSandbox

    with Service(answer(200, RESULT)) as service:
        monkeypatch.setenv("SANDBOXD_URL", service.settings["url"])
        monkeypatch.setenv("SANDBOXD_API_KEY", "k")

        async def use() -> str:
            return (await AsyncSandbox.connect(SANDBOX).execute("x")).stdout

        assert [asyncio.run(use()) for _ in range(3)] == ["hi\n"] * 3
