"""Clean-ups wait for rate limits, whatever the client waits for: otherwise sandboxes would be left."""

from __future__ import annotations

import asyncio
import time
from typing import Any, List

import pytest

from sandboxd import AsyncSandboxd, Forbidden, RateLimited, Sandboxd
from sandboxd._async import _background
from sandboxd._sync import _background as blocking_background
from scripted import SANDBOX, TEMPLATE, VIEW, Received, Responder, Service, answer, failure
from test_cancellation import TERMINATED, Waiting, assert_is_undone, interrupts, needs_signals, until

LIMITED: Responder = failure(429, "RATE_LIMITED", headers={"retry-after": "1"})
IMPATIENT = {"max_retry_wait": 0, "retries": 0}


def methods(received: List[Received]) -> List[str]:
    return [each.method for each in received]


def test_the_end_of_a_block_waits_for_a_rate_limit() -> None:
    with Service([answer(201, VIEW), LIMITED, LIMITED, answer(200, TERMINATED)]) as service:
        with Sandboxd(**service.settings, **IMPATIENT) as client:
            begin = time.monotonic()
            with client.sandboxes.create("i"):
                pass
            assert time.monotonic() - begin >= 2
        assert methods(service.received) == ["POST", "DELETE", "DELETE", "DELETE"]


async def test_the_end_of_a_block_of_asyncio_waits_for_a_rate_limit() -> None:
    with Service([answer(201, VIEW), LIMITED, answer(200, TERMINATED)]) as service:
        async with AsyncSandboxd(**service.settings, **IMPATIENT) as client:
            with pytest.raises(ValueError, match="mine"):
                async with client.sandboxes.create("i"):
                    raise ValueError("mine")
        assert methods(service.received) == ["POST", "DELETE", "DELETE"]


def test_a_termination_on_request_waits_as_the_client_does() -> None:
    with Service([LIMITED]) as service:
        with Sandboxd(**service.settings, **IMPATIENT) as client:
            with pytest.raises(RateLimited):
                client.sandboxes.connect(SANDBOX).terminate()


def test_a_sandbox_that_is_left_after_an_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with Service([answer(201, VIEW), failure(403, "FORBIDDEN")] * 2) as service:
        with Sandboxd(**service.settings) as client:
            with pytest.raises(ValueError, match="mine"):
                with client.sandboxes.create("i"):
                    raise ValueError("mine")
            assert [record.getMessage() for record in caplog.records] == [
                f"the sandbox {SANDBOX} was not terminated: why (FORBIDDEN, request req_1)"
            ]
            with pytest.raises(Forbidden):
                with client.sandboxes.create("i"):
                    pass


async def test_the_clean_up_of_a_cancelled_create_waits_for_rate_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_background, "CLEANUP_TIMEOUT", 0.5)
    monkeypatch.setattr(_background, "CLEANUP_GRACE", 0.1)
    waiting = Waiting()
    responders: List[Responder] = [waiting, LIMITED, answer(201, VIEW), LIMITED, answer(200, TERMINATED)]
    with Service(responders) as service:
        async with AsyncSandboxd(**service.settings, **IMPATIENT) as client:
            task = asyncio.ensure_future(client.sandboxes.create("i").__aenter__())
            await until(waiting.began)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        create, _, repeated, _, terminate = service.received
        assert_is_undone([create, repeated, terminate])


@needs_signals
def test_the_clean_up_of_an_interrupted_create_waits_for_rate_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking_background, "CLEANUP_TIMEOUT", 0.5)
    waiting = Waiting()
    responders: List[Responder] = [waiting, LIMITED, answer(201, VIEW), LIMITED, answer(200, TERMINATED)]
    with Service(responders) as service:
        with Sandboxd(**service.settings, **IMPATIENT) as client, interrupts(waiting):
            with pytest.raises(KeyboardInterrupt):
                client.sandboxes.create("i")
            # The call has waited for the clean-up.
            create, _, repeated, _, terminate = service.received
            assert_is_undone([create, repeated, terminate])


async def cancelled(service: Service, call: Any, requests: int) -> None:
    task = asyncio.ensure_future(call)
    while len(service.received) < requests:
        await asyncio.sleep(0.01)
    # The response has arrived, and the call waits.
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("code, status", [("RATE_LIMITED", 429), ("RESOURCE_EXHAUSTED", 503)])
async def test_a_call_that_was_refused_is_not_undone(code: str, status: int) -> None:
    refused = failure(status, code, headers={"retry-after": "60"})
    with Service([refused] * 4) as service:
        async with AsyncSandboxd(**service.settings) as client:
            sandbox = client.sandboxes.connect(SANDBOX)
            calls = [
                client.sandboxes.create("i").__aenter__(),
                sandbox.fork(2),
                client.templates.start("web", dockerfile="FROM a"),
                sandbox.execute("sleep 1000", timeout="1h"),
            ]
            for number, call in enumerate(calls, 1):
                await cancelled(service, call, number)
        assert len(service.received) == 4


async def test_a_call_whose_earlier_attempt_was_lost_is_undone_although_it_was_refused() -> None:
    refused = failure(429, "RATE_LIMITED", headers={"retry-after": "60"})

    def cut(received: Received, handler: Any) -> None:
        handler.cut()

    cancelled_build = answer(200, {**TEMPLATE, "state": "cancelled"})
    with Service([cut, refused, answer(202, TEMPLATE), cancelled_build]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            await cancelled(service, client.templates.start("web", dockerfile="FROM a"), 2)
        build, _, repeated, cancel = service.received
        assert repeated.headers["idempotency-key"] == build.headers["idempotency-key"]
        assert cancel.path == f"/v1/templates/{TEMPLATE['id']}/cancel"
