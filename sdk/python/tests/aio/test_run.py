"""Runs upload their events in batches, and their errors do not interrupt the program."""

from __future__ import annotations

import json
import threading
import time
from typing import Any, Dict, List

import pytest

from sandboxd import ConfigurationError, InternalError, RateLimited, RuntimeEvent
from sandboxd._async import _uploader as uploader
from sandboxd._async._client import AsyncSandboxd
from sandboxd._async._platform import sleep
from sandboxd._async._run import AsyncRun
from scripted import VIEW, Received, Responder, Service, answer, failure

SANDBOX = "sb_01234567890123456789"


def posts(service: Service) -> List[List[Dict[str, Any]]]:
    return [json.loads(received.body) for received in service.received]


def recorded(received: Received, handler: Any) -> None:
    answer(201, {"recorded": len(json.loads(received.body))})(received, handler)


async def test_events_are_uploaded_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploader, "BATCH_INTERVAL", 60.0)
    with Service(recorded) as service:
        async with AsyncSandboxd(**service.settings) as client:
            run = AsyncRun("nightly-17").to_service(client.sandboxes.connect(SANDBOX))
            run.thinking("first")
            begin = time.monotonic()
            while not service.received and time.monotonic() - begin < 5:
                await sleep(0.01)
            assert len(service.received) == 1
            for number in range(3):
                run.tool_call("shell", {"number": number})
            run.record("exec.started", {"command": "not posted by clients"}, SANDBOX)
            await sleep(0.1)
            assert len(service.received) == 1
            # A flush does not wait for the interval.
            await run.flush()
            assert time.monotonic() - begin < 10
    sent = posts(service)
    assert [[event["type"] for event in batch] for batch in sent] == [["agent.thinking"], ["agent.tool_call"] * 3]
    assert sent[0][0]["runId"] == "nightly-17" and sent[0][0]["data"] == {"text": "first"}
    keys = {received.headers["idempotency-key"] for received in service.received}
    assert len(keys) == 2 and service.received[0].path == f"/v1/sandboxes/{SANDBOX}/events"


async def test_batches_are_bounded() -> None:
    with Service(recorded) as service:
        async with AsyncSandboxd(**service.settings) as client:
            run = AsyncRun().to_service(client.sandboxes.connect(SANDBOX))
            for _ in range(250):
                run.thinking("x")
            for _ in range(20):
                run.tool_result("read", "y" * 15_000)
            await run.flush()
    sent = posts(service)
    assert sum(len(batch) for batch in sent) == 270
    assert max(len(batch) for batch in sent) == 100
    assert max(len(received.body) for received in service.received) < 256 << 10


async def test_rate_limited_batches_are_retried_with_their_key() -> None:
    limited: Responder = failure(429, "RATE_LIMITED", headers={"retry-after": "0"})
    with Service([limited, limited, limited, limited, recorded]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            run = AsyncRun().to_service(client.sandboxes.connect(SANDBOX))
            run.error("the model answered no JSON")
            await run.flush()
    assert len(service.received) == 5
    assert len({received.headers["idempotency-key"] for received in service.received}) == 1


async def test_retries_are_bounded_and_the_first_error_is_raised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploader, "RETRY_BUDGET", 0.0)
    with Service([failure(429, "RATE_LIMITED", headers={"retry-after": "90"}), failure(500, "INTERNAL_ERROR")]) as service:
        async with AsyncSandboxd(**service.settings, retries=0) as client:
            run = AsyncRun().to_service(client.sandboxes.connect(SANDBOX))
            run.thinking("a")
            with pytest.raises(RateLimited):
                await run.flush()
            run.thinking("b")
            with pytest.raises(InternalError):
                await run.flush()
            await run.flush()


async def test_a_full_queue_and_large_data_are_errors_of_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploader, "QUEUE_MAX", 2)
    monkeypatch.setattr(uploader, "BATCH_INTERVAL", 60.0)
    with Service(recorded) as service:
        async with AsyncSandboxd(**service.settings) as client:
            run = AsyncRun().to_service(client.sandboxes.connect(SANDBOX))
            run.tool_result("read", "y" * 17_000)
            with pytest.raises(ConfigurationError, match="17027 bytes, the limit is 16384"):
                await run.flush()
            run.thinking("first")
            await sleep(0.3)
            for _ in range(4):
                run.thinking("x")
            with pytest.raises(ConfigurationError, match="2 events are queued"):
                await run.flush()
    assert sum(len(batch) for batch in posts(service)) == 3


async def test_other_threads_record_events() -> None:
    with Service(recorded) as service:
        async with AsyncSandboxd(**service.settings) as client:
            run = AsyncRun().to_service(client.sandboxes.connect(SANDBOX))
            seen: List[RuntimeEvent] = []
            run.on_event(seen.append)

            def work() -> None:
                for _ in range(50):
                    run.thinking("x")

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    await sleep(0.01)
            await run.flush()
    assert sum(len(batch) for batch in posts(service)) == 200
    assert len({event.id for event in seen}) == 200


async def test_a_sandbox_records_its_calls_in_its_run() -> None:
    result = {"stdout": "", "stderr": "", "exitCode": 0, "signal": None, "durationMs": 3}
    with Service([answer(200, result), failure(404, "FILE_NOT_FOUND")]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            run = AsyncRun("a")
            kinds: List[str] = []
            run.on_event(lambda event: kinds.append(event.type))
            sandbox = client.sandboxes.connect(SANDBOX).with_run(run)
            await sandbox.execute("true")
            with pytest.raises(Exception, match="why"):
                await sandbox.files.read("missing")
    assert kinds[:2] == ["exec.started", "exec.completed"] and "file.error" in kinds
    assert [received.headers["x-run-id"] for received in service.received] == ["a", "a"]


async def test_a_create_whose_run_cannot_record_it_terminates_its_sandbox() -> None:
    class FailingRun(AsyncRun):
        def record(self, *_: Any) -> Any:
            raise ValueError("mine")

    terminated = {"id": VIEW["id"], "state": "terminated", "terminatedAt": "t", "totalRuntimeMs": 1}
    with Service([answer(201, VIEW), answer(200, terminated)]) as service:
        async with AsyncSandboxd(**service.settings) as client:
            with pytest.raises(ValueError, match="mine"):
                await client.sandboxes.create("i", run=FailingRun())
        create, terminate = service.received
        assert (terminate.method, terminate.path) == ("DELETE", f"/v1/sandboxes/{VIEW['id']}")
