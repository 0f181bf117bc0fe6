"""Calls that the service refuses because of a limit wait in the order in which they were made, and say once what they wait for."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional

import httpx
import pytest

from sandboxd import AsyncSandboxd, RateLimited, Sandboxd
from sandboxd._errors import ResourceExhausted, SandboxdError
from sandboxd._limit_queue import SPACING, LimitQueues, wait_text
from scripted import RESULT, SANDBOX, VIEW, Service, answer

DETAILS: Dict[str, Any] = {
    "limit": "creates per minute",
    "value": 10,
    "key": "limits.create_per_minute",
    "retryAfter": 41,
}
NOTICE = "10 creates per minute: waiting 2 s; the operator sets limits.create_per_minute"


def refusal(retry_after: int, code: str = "RATE_LIMITED", details: Optional[Dict[str, Any]] = None) -> httpx.Response:
    error = {"code": code, "message": "why", "details": DETAILS if details is None else details, "requestId": "r"}
    status = 429 if code == "RATE_LIMITED" else 503
    return httpx.Response(status, json={"error": error}, headers={"retry-after": str(retry_after)})


class Limiter:
    """Admits a number of creates in a sliding window of a second, as the service does in a minute."""

    def __init__(self, limit: int) -> None:
        self.admitted: List[str] = []
        self.refused = 0
        self._limit = limit
        self._times: Deque[float] = deque()
        self._lock = threading.Lock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            return httpx.Response(200, json={"id": SANDBOX, "state": "terminated", "terminatedAt": "t", "totalRuntimeMs": 1})
        with self._lock:
            now = time.monotonic()
            while self._times and self._times[0] <= now - 1:
                self._times.popleft()
            if len(self._times) >= self._limit:
                self.refused += 1
                return refusal(1)
            self._times.append(now)
            self.admitted.append(json.loads(request.read())["metadata"]["number"])
            return httpx.Response(201, json=VIEW)


def settings_of(http: Callable[[httpx.Request], httpx.Response], **settings: Any) -> Dict[str, Any]:
    return {"url": "http://127.0.0.1:9", "api_key": "k", "http": httpx.MockTransport(http), **settings}


async def test_twenty_concurrent_creates_succeed_in_order(caplog: pytest.LogCaptureFixture) -> None:
    limiter = Limiter(6)
    async with AsyncSandboxd(**settings_of(limiter)) as client:

        async def create(number: int) -> None:
            async with client.sandboxes.create("i", metadata={"number": str(number)}):
                pass

        await asyncio.gather(*(create(number) for number in range(20)))
    assert limiter.admitted == [str(number) for number in range(20)]
    # Those that wait learn from the first one whether the limit has ended.
    assert limiter.refused < 14 + 12
    # All of them wait for the same.
    assert [record.getMessage() for record in caplog.records] == [NOTICE]
    assert caplog.records[0].name == "sandboxd" and caplog.records[0].levelname == "WARNING"


def queued(client: Sandboxd) -> int:
    return sum(len(queue.numbers) for queue in list(client._transport._queues._queues.values()))


def test_concurrent_blocking_creates_succeed_in_order() -> None:
    limiter = Limiter(4)
    with Sandboxd(**settings_of(limiter)) as client:
        threads = []
        for number in range(12):
            create = threading.Thread(target=client.sandboxes.create, args=("i",), kwargs={"metadata": {"number": str(number)}})
            create.start()
            threads.append(create)
            # The order in which threads begin would be random.
            while len(limiter.admitted) + queued(client) <= number:
                time.sleep(0.001)
        for thread in threads:
            thread.join()
    assert limiter.admitted == [str(number) for number in range(12)]


async def test_a_new_call_does_not_overtake_those_that_wait() -> None:
    limiter = Limiter(1)
    async with AsyncSandboxd(**settings_of(limiter)) as client:

        def create(number: int) -> "asyncio.Task[Any]":
            opening = client.sandboxes.create("i", metadata={"number": str(number)})
            return asyncio.ensure_future(opening.__aenter__())

        tasks = [create(0), create(1)]
        await asyncio.sleep(0.2)
        refused = limiter.refused
        tasks.append(create(2))
        await asyncio.sleep(0.2)
        # It is not even sent.
        assert limiter.refused == refused == 1
        await asyncio.gather(*tasks)
    assert limiter.admitted == ["0", "1", "2"]


async def test_a_cancelled_call_does_not_hold_up_the_others() -> None:
    limiter = Limiter(1)
    async with AsyncSandboxd(**settings_of(limiter)) as client:
        tasks = []
        for number in range(3):
            opening = client.sandboxes.create("i", metadata={"number": str(number)})
            tasks.append(asyncio.ensure_future(opening.__aenter__()))
        await asyncio.sleep(0.2)
        tasks[1].cancel()
        begin = time.monotonic()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert time.monotonic() - begin < 1.5
    # The service had refused it, so there is no sandbox to terminate.
    assert limiter.admitted == ["0", "2"] and tasks[1].cancelled()


def test_a_wait_is_limited_by_the_client_and_by_the_call() -> None:
    requests: List[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return refusal(41)

    with Sandboxd(**settings_of(respond, max_retry_wait="40s")) as client:
        begin = time.monotonic()
        with pytest.raises(RateLimited) as caught:
            client.sandboxes.create("i")
        assert (caught.value.retry_after, caught.value.repeats, len(requests)) == (41, 0, 1)
        for wait in (False, 0, "5s"):
            with pytest.raises(RateLimited):
                client.sandboxes.create("i", wait=wait)
        assert time.monotonic() - begin < 1 and len(requests) == 4


def test_all_waits_of_a_call_together_are_limited() -> None:
    requests: List[float] = []

    def respond(_: httpx.Request) -> httpx.Response:
        requests.append(time.monotonic())
        return refusal(1)

    with Sandboxd(**settings_of(respond, max_retry_wait=2.5, retries=0)) as client:
        with pytest.raises(RateLimited) as caught:
            client.health()
    assert len(requests) == 3 and caught.value.repeats == 2


def test_a_call_that_cannot_wait_in_the_queue_is_sent_at_once() -> None:
    limiter = Limiter(1)
    with Sandboxd(**settings_of(limiter)) as client:
        client.sandboxes.create("i", metadata={"number": "0"})
        waiting = threading.Thread(target=client.sandboxes.create, args=("i",), kwargs={"metadata": {"number": "1"}})
        waiting.start()
        while not limiter.refused:
            time.sleep(0.001)
        # The error names the limit, because the service was asked.
        with pytest.raises(RateLimited) as caught:
            client.sandboxes.create("i", metadata={"number": "2"}, wait=False)
        assert caught.value.details["key"] == "limits.create_per_minute" and waiting.is_alive()
        waiting.join()
    assert limiter.admitted == ["0", "1"]


def test_capacity_is_awaited_without_counting_retries(caplog: pytest.LogCaptureFixture) -> None:
    pulling = {"condition": "image_pull"}
    responses = [refusal(0, "RESOURCE_EXHAUSTED", pulling) for _ in range(4)]

    def respond(_: httpx.Request) -> httpx.Response:
        return responses.pop() if responses else httpx.Response(201, json=VIEW)

    with Sandboxd(**settings_of(respond, retries=0)) as client:
        assert client.sandboxes.create("i").id == SANDBOX
    assert [record.getMessage() for record in caplog.records] == ["waiting 1 s: why"]


def test_each_wait_is_announced_once(caplog: pytest.LogCaptureFixture) -> None:
    limiter = Limiter(1)
    with Sandboxd(**settings_of(limiter)) as client:
        for number in range(3):
            client.sandboxes.create("i", metadata={"number": str(number)})
    assert [record.getMessage() for record in caplog.records] == [NOTICE] * 2


def test_a_websocket_waits_for_a_limit() -> None:
    def refused(received: Any, handler: Any) -> None:
        error = {"code": "RATE_LIMITED", "message": "why", "details": DETAILS, "requestId": "r"}
        answer(429, {"error": error}, {"retry-after": "1"})(received, handler)

    with Service([refused, answer(404, {"error": {"code": "EXECUTION_NOT_FOUND", "message": "m"}})]) as service:
        with Sandboxd(**service.settings) as client:
            begin = time.monotonic()
            with pytest.raises(SandboxdError, match="EXECUTION_NOT_FOUND"):
                client.sandboxes.connect(SANDBOX).executions.handle("ex_1").attach()
            assert time.monotonic() - begin >= 1 and len(service.received) == 2


@pytest.mark.parametrize(
    ("details", "text"),
    [
        (DETAILS, "10 creates per minute: waiting 41 s; the operator sets limits.create_per_minute"),
        ({"limit": "file operations at a time", "value": 16}, "16 file operations at a time: waiting 41 s"),
        ({"condition": "image_pull"}, "waiting 41 s: the image is being pulled; try again in 41 s"),
        ({"limit": 10, "value": "many", "key": 3}, "waiting 41 s: the image is being pulled; try again in 41 s"),
        ({}, "waiting 41 s: the image is being pulled; try again in 41 s"),
    ],
)
def test_a_notice_names_the_limit_and_the_setting(details: Dict[str, Any], text: str) -> None:
    error = ResourceExhausted("the image is being pulled; try again in 41 s", details=details)
    assert wait_text(error, 40.5) == text
    assert wait_text(error, 40.5, 22.4) == text.replace("waiting 41 s", "waiting 41 s, after 22 s")


def test_queued_calls_leave_in_order_and_apart() -> None:
    queues = LimitQueues()
    first, second, third = (queues.number() for _ in range(3))
    error = RateLimited("m", details=DETAILS)
    queues.requeue("create", second, error, until=10.0)
    queues.requeue("create", first, error, until=11.0)
    queues.join("create", third)
    # A call of another kind does not wait, nor one whose queue is empty.
    queues.join("read", third)
    assert queues.delay("read", third, now=0.0) == 0
    assert queues.delay("create", first, now=1.0) == 10.0
    assert queues.delay("create", second, now=1.0) == pytest.approx(10.0 + SPACING)
    # A call that wakes before its turn waits for those before it.
    assert queues.delay("create", third, now=11.5) > 0
    assert queues.delay("create", first, now=11.5) == 0
    assert queues.delay("create", second, now=11.5) == pytest.approx(SPACING)
    queues.requeue("create", first, error, until=20.0)
    assert queues.delay("create", second, now=11.6) == pytest.approx(20.0 + SPACING - 11.6)
    queues.end("create", first)
    assert queues.delay("create", second, now=20.0) == 0
    assert queues.delay("create", third, now=20.0 + SPACING) == 0
    # Nobody waits any more.
    queues.join("create", queues.number())
    assert queues.delay("create", 3, now=0.0) == 0


def test_a_limit_is_announced_to_the_first_of_those_that_wait() -> None:
    queues = LimitQueues()
    creates = RateLimited("m", details=DETAILS)
    writes = RateLimited("m", details={**DETAILS, "key": "limits.write_per_minute"})
    assert queues.notice(0, creates, 1.0, now=0.0) is not None
    assert queues.notice(1, creates, 1.0, now=0.0) is None and queues.notice(0, creates, 1.0, now=0.0) is None
    assert queues.notice(1, writes, 1.0, now=0.0) is not None
    queues.end("create", 0)
    assert queues.notice(2, creates, 1.0, now=0.0) is None
    queues.requeue("create", 2, creates, until=1.0)
    queues.join("create", 3)
    queues.end("create", 1)
    queues.end("create", 2)
    assert queues.notice(4, creates, 1.0, now=0.0) is None
    queues.end("create", 3)
    queues.end("create", 4)
    assert queues.notice(5, creates, 1.0, now=0.0) is not None


def test_calls_that_wait_longer_than_announced_are_announced_again() -> None:
    queues = LimitQueues()
    creates = RateLimited("m", details=DETAILS)
    assert queues.notice(0, creates, 60.0, now=0.0) is not None
    assert queues.notice(1, creates, 60.5, now=0.1) is None
    again = queues.notice(1, creates, 60.0, now=61.0)
    assert again is not None and again.endswith("(2 calls wait)")


def test_a_waiting_command_is_sent_when_another_one_returns() -> None:
    lock, running, most = threading.Lock(), [0], [0]
    details = {"limit": "commands at a time", "value": 3, "key": "limits.concurrent_executions"}

    def respond(_: httpx.Request) -> httpx.Response:
        with lock:
            if running[0] == 3:
                return refusal(2, details=details)
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.1)
        with lock:
            running[0] -= 1
        return httpx.Response(200, json=RESULT)

    with Sandboxd(**settings_of(respond)) as client:
        sandbox = client.sandboxes.connect(SANDBOX)
        threads = [threading.Thread(target=sandbox.execute, args=("sleep 0.1",)) for _ in range(20)]
        begin = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # Seven rounds of 0.1 s, and not one wait of Retry-After.
    taken = time.monotonic() - begin
    print(f"{taken:.2f} s")
    assert most[0] == 3 and taken < 1.8
