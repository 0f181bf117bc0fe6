"""A cancelled or interrupted build is cancelled at the service, unless the caller gave an idempotency key."""

from __future__ import annotations

import asyncio
from typing import List, Optional

import pytest

from sandboxd import AsyncSandboxd, BuildEvent, Sandboxd
from scripted import TEMPLATE, Received, Service, answer, events
from test_cancellation import Waiting, interrupts, needs_signals, until

ID = TEMPLATE["id"]
CANCELLED = answer(200, {**TEMPLATE, "state": "cancelled"})
ACCEPTED = answer(201, {**TEMPLATE, "state": "building"})
LOG = "id: 5\nevent: stdout\ndata: one\n\n"


def paths(received: List[Received]) -> List[str]:
    return [f"{each.method} {each.path}" for each in received]


CANCEL = f"POST /v1/templates/{ID}/cancel"
LOGS = f"GET /v1/templates/{ID}/logs"


@pytest.mark.parametrize("key", [None, "mine"])
async def test_a_cancelled_build_is_cancelled_unless_the_caller_has_a_key(key: Optional[str]) -> None:
    waiting = Waiting(LOG.encode())
    with Service([ACCEPTED, waiting, CANCELLED]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            building = client.templates.build("web", dockerfile="FROM a", idempotency_key=key)
            task = asyncio.ensure_future(building)
            await until(waiting.began)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(waiting.closed)
        expected = ["POST /v1/templates", LOGS]
        assert paths(service.received) == (expected if key else [*expected, CANCEL])


@pytest.mark.parametrize("is_awaited", [True, False])
async def test_a_build_whose_request_is_cancelled_is_found_by_its_key(is_awaited: bool) -> None:
    waiting = Waiting()
    with Service([waiting, ACCEPTED, CANCELLED]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            templates = client.templates
            start = templates.build if is_awaited else templates.start
            task = asyncio.ensure_future(start("web", dockerfile="FROM a"))
            await until(waiting.began)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        request, repeated, _ = service.received
        assert paths(service.received) == ["POST /v1/templates"] * 2 + [CANCEL]
        assert request.body == repeated.body
        assert request.headers["idempotency-key"] == repeated.headers["idempotency-key"]


async def test_a_wait_that_is_cancelled_does_not_cancel_the_build() -> None:
    waiting = Waiting(LOG.encode())
    with Service([waiting]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            task = asyncio.ensure_future(client.templates.wait(ID))
            await until(waiting.began)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(waiting.closed)
        assert paths(service.received) == [LOGS]


@needs_signals
def test_an_interrupted_blocking_build_is_cancelled() -> None:
    waiting = Waiting(LOG.encode())
    with Service([ACCEPTED, waiting, CANCELLED]) as service:
        with Sandboxd(**service.settings) as client, interrupts(waiting):
            with pytest.raises(KeyboardInterrupt):
                client.templates.build("web", dockerfile="FROM a")
            # The call has waited for the cancellation.
            assert paths(service.received) == ["POST /v1/templates", LOGS, CANCEL]


def test_an_exception_of_a_handler_cancels_the_build() -> None:
    def refuse(event: BuildEvent) -> None:
        raise ValueError(str(event))

    with Service([ACCEPTED, events(LOG), CANCELLED]) as service, Sandboxd(**service.settings) as client:
        with pytest.raises(ValueError, match="one"):
            client.templates.build("web", dockerfile="FROM a", on_log=refuse)
        assert paths(service.received) == ["POST /v1/templates", LOGS, CANCEL]
