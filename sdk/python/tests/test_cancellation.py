"""Cancelled tasks close their connections, and leave neither tasks nor threads. Interrupted creates leave no sandboxes."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Iterator, List, Optional, Type

import httpx
import pytest

from sandboxd import AsyncSandboxd, EventStream, InvalidState, NetworkError, Sandboxd
from sandboxd._async import _background
from sandboxd._sync import _background as blocking_background
from scripted import EXECUTION, RESULT, SANDBOX, VIEW, Handler, Received, Service, answer, failure


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


KILLED = answer(200, {**EXECUTION, "state": "exited"})


# Once while the command is being started, and once while its output is awaited.
@pytest.mark.parametrize("is_started", [False, True])
async def test_a_cancelled_call_kills_its_long_command(is_started: bool) -> None:
    waiting = Waiting(b": comment\n\n" if is_started else b"")
    started = answer(201, EXECUTION)
    with Service([started, waiting, KILLED] if is_started else [waiting, started, KILLED]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            task = asyncio.ensure_future(client.sandboxes.connect(SANDBOX).execute("sleep 1000", timeout="1h"))
            await until(waiting.began)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        kill = service.received[-1]
        assert (kill.method, kill.path) == ("DELETE", f"/v1/sandboxes/{SANDBOX}/executions/{EXECUTION['executionId']}")
        starts = [each.headers["idempotency-key"] for each in service.received if each.method == "POST"]
        assert len(set(starts)) == 1 and len(service.received) == 3


@pytest.mark.parametrize("options", [{"killed_on_cancel": False}, {"idempotency_key": "mine"}])
async def test_a_long_command_that_is_not_killed_on_cancel_continues(options: Any) -> None:
    waiting = Waiting(b": comment\n\n")
    with Service([answer(201, EXECUTION), waiting]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            sandbox = client.sandboxes.connect(SANDBOX)
            task = asyncio.ensure_future(sandbox.execute("sleep 1000", timeout="1h", **options))
            await until(waiting.began)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert len(service.received) == 2


TERMINATED = {"id": SANDBOX, "state": "terminated", "terminatedAt": "t", "totalRuntimeMs": 1}


def assert_is_undone(received: List[Received]) -> None:
    create, repeated, terminate = received
    assert (repeated.path, repeated.body) == (create.path, create.body)
    assert repeated.headers["idempotency-key"] == create.headers["idempotency-key"]
    assert (terminate.method, terminate.path) == ("DELETE", f"/v1/sandboxes/{SANDBOX}")


async def cancelled_create(client: AsyncSandboxd, waiting: Waiting, times: int = 1, **options: Any) -> None:
    task = asyncio.ensure_future(client.sandboxes.create("i", **options).__aenter__())
    await until(waiting.began)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0.05)
    with pytest.raises(asyncio.CancelledError):
        await task


# A second cancellation ends the wait for the clean-up, but not the clean-up.
@pytest.mark.parametrize("times", [1, 2])
async def test_a_cancelled_create_terminates_its_sandbox(times: int) -> None:
    waiting = Waiting()
    with Service([waiting, answer(201, VIEW), answer(200, TERMINATED)]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            await cancelled_create(client, waiting, times)
        assert_is_undone(service.received)


async def test_a_cancelled_create_with_a_key_of_the_caller_is_left_to_the_caller() -> None:
    waiting = Waiting()
    with Service([waiting]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            await cancelled_create(client, waiting, idempotency_key="mine")
        assert len(service.received) == 1


async def test_the_clean_up_of_a_cancelled_create_does_not_wait_for_capacity(caplog: pytest.LogCaptureFixture) -> None:
    waiting = Waiting()
    with Service([waiting, failure(503, "RESOURCE_EXHAUSTED")]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            await cancelled_create(client, waiting)
        assert len(service.received) == 2
    assert [record.message for record in caplog.records] == ["terminating the sandbox of a cancelled create failed"]


async def test_the_clean_up_of_a_cancelled_create_takes_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_background, "CLEANUP_GRACE", 0.1)
    monkeypatch.setattr(_background, "CLEANUP_TIMEOUT", 0.5)
    first, second = Waiting(), Waiting()
    with Service([first, second]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            await cancelled_create(client, first)
            await until(second.began)
            assert not second.closed.is_set()
        await until(second.closed)
        assert len(service.received) == 2


FORKS = {"data": [{**VIEW, "id": f"sb_{number}"} for number in range(3)]}


def assert_forks_are_undone(received: List[Received]) -> None:
    fork, repeated, *terminations = received
    assert (repeated.path, repeated.body) == (fork.path, fork.body)
    assert repeated.headers["idempotency-key"] == fork.headers["idempotency-key"]
    paths = [(each.method, each.path) for each in terminations]
    assert paths == [("DELETE", f"/v1/sandboxes/sb_{number}") for number in range(3)]


@pytest.mark.parametrize("key", [None, "mine"])
async def test_a_cancelled_fork_terminates_its_sandboxes_unless_the_caller_has_a_key(
    key: Optional[str], caplog: pytest.LogCaptureFixture
) -> None:
    waiting = Waiting()
    # If one is terminated already, or cannot be terminated, the others are.
    gone = failure(404, "SANDBOX_NOT_FOUND", {"state": "terminated", "reason": "timeout"})
    with Service([waiting, answer(201, FORKS), gone, failure(403, "FORBIDDEN"), answer(200, TERMINATED)]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            task = asyncio.ensure_future(client.sandboxes.connect(SANDBOX).fork(3, idempotency_key=key))
            await until(waiting.began)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        if key is None:
            assert_forks_are_undone(service.received)
            messages = [record.message for record in caplog.records]
            assert messages == ["terminating the sandboxes of a cancelled fork failed"]
        else:
            assert len(service.received) == 1


needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="a thread cannot send signals to another")


@contextmanager
def interrupts(*begun: Waiting, number: int = signal.SIGINT) -> Iterator[None]:
    """Sends a signal to the main thread each time the service has received a request that it does not respond to."""

    def interrupt() -> None:
        for each in begun:
            if each.began.wait(10):
                # A response that has begun is being read by then, also on a busy machine. An interrupt in the middle of a clean-up
                # of the interpreter would be dropped by it.
                time.sleep(0.5)
                signal.pthread_kill(threading.main_thread().ident or 0, number)

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGTERM, before)


@needs_signals
@pytest.mark.parametrize("head", [b"", b'{"id": '])
@pytest.mark.parametrize("number, error", [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_an_interrupted_blocking_create_terminates_its_sandbox(
    head: bytes, number: int, error: Type[BaseException]
) -> None:
    waiting = Waiting(head)
    with Service([waiting, answer(201, VIEW), answer(200, TERMINATED)]) as service:
        with Sandboxd(**service.settings) as client, interrupts(waiting, number=number):
            with pytest.raises(error):
                client.sandboxes.create("i")
            # The call has waited for the clean-up.
            assert_is_undone(service.received)
        assert waiting.closed.wait(5)


@needs_signals
def test_an_interrupted_blocking_fork_terminates_its_sandboxes() -> None:
    waiting = Waiting()
    with Service([waiting, answer(201, FORKS), *[answer(200, TERMINATED)] * 3]) as service:
        with Sandboxd(**service.settings) as client, interrupts(waiting):
            with pytest.raises(KeyboardInterrupt):
                client.sandboxes.connect(SANDBOX).fork(3)
            assert_forks_are_undone(service.received)


def test_a_blocking_create_that_is_interrupted_in_a_handler_terminates_its_sandbox() -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with Service([answer(201, VIEW), answer(200, TERMINATED)]) as service:
        with Sandboxd(**service.settings) as client:
            with pytest.raises(KeyboardInterrupt):
                client.sandboxes.create("i", on={"started": interrupted})
        assert [received.method for received in service.received] == ["POST", "DELETE"]


@needs_signals
def test_an_interrupted_blocking_create_with_a_key_of_the_caller_is_left_to_the_caller() -> None:
    waiting = Waiting()
    with Service([waiting]) as service:
        with Sandboxd(**service.settings) as client, interrupts(waiting):
            with pytest.raises(KeyboardInterrupt):
                client.sandboxes.create("i", idempotency_key="mine")
        assert len(service.received) == 1


@needs_signals
def test_a_second_interrupt_ends_the_wait_for_the_clean_up_but_not_the_clean_up() -> None:
    first, second = Waiting(), Waiting()
    ended = threading.Event()

    def terminated(received: Received, handler: Handler) -> None:
        answer(200, TERMINATED)(received, handler)
        ended.set()

    # The attempt of the clean-up takes longer than the timeout of the client, and is repeated.
    with Service([first, second, answer(201, VIEW), terminated]) as service:
        with Sandboxd(**service.settings) as client, interrupts(first, second):
            begin = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                client.sandboxes.create("i")
            assert time.monotonic() - begin < 1.5 and not ended.is_set()
            assert ended.wait(10)
        assert [received.method for received in service.received] == ["POST", "POST", "POST", "DELETE"]


@needs_signals
def test_the_clean_up_of_an_interrupted_create_does_not_wait_for_capacity(caplog: pytest.LogCaptureFixture) -> None:
    waiting = Waiting()
    with Service([waiting, failure(503, "RESOURCE_EXHAUSTED")]) as service:
        with Sandboxd(**service.settings) as client, interrupts(waiting):
            with pytest.raises(KeyboardInterrupt):
                client.sandboxes.create("i")
        assert len(service.received) == 2
    assert [record.message for record in caplog.records] == ["terminating the sandbox of a cancelled create failed"]


@needs_signals
def test_the_wait_for_the_clean_up_of_an_interrupted_create_is_limited(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(blocking_background, "CLEANUP_TIMEOUT", 0.2)
    first, second = Waiting(), Waiting()
    with Service([first, second]) as service:
        with Sandboxd(**{**service.settings, "retries": 0}) as client, interrupts(first):
            begin = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                client.sandboxes.create("i")
            assert time.monotonic() - begin < 1.5
            messages = [record.message for record in caplog.records]
            assert messages == ["terminating the sandbox of a cancelled create takes longer than 0.2 s"]
            assert second.closed.wait(10)


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


def test_closing_a_client_ends_the_calls_of_its_threads_and_their_sandboxes_are_terminated() -> None:
    waiting = Waiting()
    terminated = threading.Event()

    def respond(received: Received, handler: Handler) -> None:
        if received.method == "DELETE":
            terminated.set()
            answer(200, TERMINATED)(received, handler)
        elif received.path.endswith("/execute"):
            waiting(received, handler)
        else:
            answer(201, VIEW)(received, handler)

    def work(client: Sandboxd) -> None:
        with client.sandboxes.create("i") as sandbox:
            sandbox.execute("sleep 1000", timeout=100)

    with Service(respond) as service:
        begin = time.monotonic()
        with ThreadPoolExecutor(1) as pool, Sandboxd(**service.settings) as client:
            call = pool.submit(work, client)
            assert waiting.began.wait(5)
            late = pool.submit(work, client)
        assert isinstance(call.exception(), InvalidState) and isinstance(late.exception(), InvalidState)
        assert terminated.is_set() and time.monotonic() - begin < 5
        assert [each.method for each in service.received] == ["POST", "POST", "DELETE"], "nothing is repeated"


def test_a_create_that_the_end_of_its_client_cuts_off_is_undone() -> None:
    waiting = Waiting()
    with Service([waiting, answer(201, VIEW), answer(200, TERMINATED)]) as service:
        with ThreadPoolExecutor(1) as pool, Sandboxd(**service.settings) as client:
            call = pool.submit(client.sandboxes.create, "i")
            assert waiting.began.wait(5)
            time.sleep(0.1)
        assert isinstance(call.exception(), InvalidState)
        assert_is_undone(service.received)


def test_a_call_that_waits_for_a_limit_is_not_sent_after_the_end_of_its_client() -> None:
    refused = failure(429, "RATE_LIMITED", headers={"retry-after": "1"})
    with Service(refused) as service:
        with ThreadPoolExecutor(1) as pool, Sandboxd(**service.settings) as client:
            call = pool.submit(client.sandboxes.create, "i")
            while not service.received:
                time.sleep(0.02)
            time.sleep(0.1)
        assert isinstance(call.exception(), InvalidState) and len(service.received) == 1


def test_closing_a_client_ends_the_requests_for_ports_of_its_threads() -> None:
    waiting = Waiting()
    url = "https://8000-sb-01234567890123456789.sandboxes.localhost:8443"
    times = {"exposedAt": "2026-01-01T00:00:00.000Z", "autoResume": True}
    listed = answer(200, {"data": [{"port": 8000, "url": url, "visibility": "public", **times}]})
    with Service([listed, waiting]) as service:
        begin = time.monotonic()
        with ThreadPoolExecutor(1) as pool, Sandboxd(**service.settings) as client:
            http = client.sandboxes.connect(SANDBOX).ports.client(8000, timeout=60)
            call = pool.submit(http.get, "/")
            assert waiting.began.wait(5)
            time.sleep(0.1)
        assert isinstance(call.exception(), httpx.TransportError) and time.monotonic() - begin < 5
        with pytest.raises(InvalidState, match="the client is closed"):
            http.get("/")
