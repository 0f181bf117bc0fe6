"""Snapshots: the requests, the objects of responses, the events of runs, and arguments that are refused."""

from __future__ import annotations

import json
from typing import Any, Dict, List

import pytest

from sandboxd import AsyncSandboxd, InvalidConfig, NetworkError, SandboxdError, SnapshotNotFound, models
from sandboxd._async._run import AsyncRun
from scripted import SANDBOX, SNAPSHOT, VIEW, Responder, Service, answer, failure, hang_up

FORKS: List[Dict[str, Any]] = [{**VIEW, "id": f"sb_0000000000000000001{number}"} for number in range(2)]
ID = str(SNAPSHOT["id"])


async def test_a_snapshot_is_taken_and_can_be_the_image_of_a_create() -> None:
    unnamed = {key: value for key, value in SNAPSHOT.items() if key != "name"}
    with Service([hang_up, answer(201, SNAPSHOT), answer(201, unnamed), answer(201, {**VIEW, "image": ID})]) as service:
        client = AsyncSandboxd(**service.settings)
        sandbox = client.sandboxes.connect(SANDBOX)
        taken = await sandbox.snapshot("after-setup", metadata={"job": "17"}, idempotency_key="k")
        assert (taken.id, taken.sandbox_id, taken.name) == (ID, SANDBOX, "after-setup")
        assert (taken.image, taken.isolation, taken.memory, taken.size_bytes) == ("ubuntu:24.04", "container", False, 4096)
        assert (taken.state, taken.created_at, taken.metadata) == ("ready", "2026-01-01T00:00:00.000Z", {"job": "17"})
        assert (await sandbox.snapshot(memory=True)).name is None
        copy = await client.sandboxes.create(taken.id, cold=True)
        assert copy.view is not None and copy.view.image == ID
        lost, repeated, bare, create = service.received
        assert (repeated.method, repeated.path) == ("POST", f"/v1/sandboxes/{SANDBOX}/snapshots")
        assert lost.body == repeated.body and json.loads(bare.body) == {"memory": True}
        assert json.loads(repeated.body) == {"name": "after-setup", "metadata": {"job": "17"}}
        assert lost.headers["idempotency-key"] == repeated.headers["idempotency-key"] == "k"
        assert json.loads(create.body) == {"image": ID, "cold": True}
        await client.close()


async def test_a_rollback_takes_a_snapshot_or_an_id_and_updates_the_view() -> None:
    with Service([answer(200, VIEW), answer(200, {**VIEW, "timeoutMs": 7})]) as service:
        sandbox = AsyncSandboxd(**service.settings).sandboxes.connect(SANDBOX)
        assert await sandbox.rollback(ID) == sandbox.view
        view = await sandbox.rollback(models.Snapshot.from_json(SNAPSHOT))
        assert view == sandbox.view and view.timeout_ms == 7
        for received in service.received:
            assert (received.method, received.path) == ("POST", f"/v1/sandboxes/{SANDBOX}/rollback")
            assert json.loads(received.body) == {"snapshotId": ID} and "idempotency-key" not in received.headers


async def test_a_rollback_whose_response_is_lost_is_not_retried() -> None:
    with Service([hang_up]) as service:
        with pytest.raises(NetworkError):
            await AsyncSandboxd(**service.settings).sandboxes.connect(SANDBOX).rollback(ID)
        assert len(service.received) == 1


async def test_a_fork_returns_the_new_sandboxes() -> None:
    deleted = {"id": FORKS[1]["id"], "state": "terminated", "terminatedAt": "t", "totalRuntimeMs": 1}
    with Service([answer(201, {"data": FORKS}), answer(201, {"data": FORKS[:1]}), answer(200, deleted)]) as service:
        sandbox = AsyncSandboxd(**service.settings).sandboxes.connect(SANDBOX)
        forks = await sandbox.fork(2, env={"ATTEMPT": "2"}, metadata={})
        assert [fork.id for fork in forks] == [view["id"] for view in FORKS]
        assert forks[0].view == models.Sandbox.from_json(FORKS[0])
        assert len(await sandbox.fork(memory=True, idempotency_key="k")) == 1
        await forks[1].terminate()
        several, one, terminate = service.received
        assert (several.method, several.path) == ("POST", f"/v1/sandboxes/{SANDBOX}/fork")
        assert json.loads(several.body) == {"count": 2, "env": {"ATTEMPT": "2"}, "metadata": {}}
        assert json.loads(one.body) == {"count": 1, "memory": True} and one.headers["idempotency-key"] == "k"
        assert terminate.path == f"/v1/sandboxes/{FORKS[1]['id']}"


async def test_a_fork_that_fails_terminates_nothing() -> None:
    with Service([failure(400, "INVALID_CONFIG")]) as service:
        with pytest.raises(InvalidConfig):
            await AsyncSandboxd(**service.settings).sandboxes.connect(SANDBOX).fork(1000)
        assert len(service.received) == 1


async def test_a_run_records_snapshots_rollbacks_and_forks() -> None:
    responses = [answer(201, SNAPSHOT), answer(200, VIEW), answer(201, {"data": FORKS}), failure(404, "SNAPSHOT_NOT_FOUND")]
    with Service(responses) as service:
        run = AsyncRun("r")
        events: List[models.RuntimeEvent] = []
        run.on_event(events.append)
        sandbox = AsyncSandboxd(**service.settings).sandboxes.connect(SANDBOX).with_run(run)
        await sandbox.snapshot("after-setup")
        await sandbox.rollback(ID)
        forks = await sandbox.fork(2)
        with pytest.raises(SnapshotNotFound) as caught:
            await sandbox.rollback(ID)
        assert (caught.value.code, caught.value.status, caught.value.retryable) == ("SNAPSHOT_NOT_FOUND", 404, False)
        assert all(fork.context.run is run for fork in forks)
    assert [(event.type, event.sandbox_id) for event in events] == [
        ("snapshot.created", SANDBOX),
        ("sandbox.rolled_back", SANDBOX),
        ("sandbox.forked", SANDBOX),
        ("sandbox.created", FORKS[0]["id"]),
        ("sandbox.started", FORKS[0]["id"]),
        ("sandbox.created", FORKS[1]["id"]),
        ("sandbox.started", FORKS[1]["id"]),
        ("sandbox.error", SANDBOX),
    ]
    assert events[0].data == {"snapshotId": ID, "name": "after-setup", "sizeBytes": 4096}
    assert events[1].data == {"snapshotId": ID}
    assert events[2].data == {"sandboxIds": [view["id"] for view in FORKS]}


async def test_snapshots_are_listed_fetched_and_deleted() -> None:
    def page(numbers: List[int], more: bool) -> Responder:
        pagination = {"limit": 2, "offset": 0, "total": 3, "hasMore": more}
        snapshots = [{**SNAPSHOT, "id": f"snap_{number}"} for number in numbers]
        return answer(200, {"data": snapshots, "pagination": pagination})

    deleted = answer(200, {"id": ID, "deletedAt": "t"})
    with Service([page([3, 2], True), page([2, 1], False), answer(200, SNAPSHOT), deleted, deleted]) as service:
        snapshots = AsyncSandboxd(**service.settings).snapshots
        listed = snapshots.list(sandbox_id=SANDBOX, name="a b", metadata={"job": "17"}, page_size=2)
        assert await listed.total() == 3
        assert [each.id for each in await listed.all()] == ["snap_3", "snap_2", "snap_1"]
        found = await snapshots.get(ID)
        assert found == models.Snapshot.from_json(SNAPSHOT)
        assert (await snapshots.delete(found)).deleted_at == "t" and (await snapshots.delete(ID)).id == ID
        query = f"sandboxId={SANDBOX}&name=a%20b&limit=2&offset=2&metadata.job=17"
        assert service.received[1].path == f"/v1/snapshots?{query}"
        requests = [(received.method, received.path) for received in service.received[2:]]
        assert requests == [(method, f"/v1/snapshots/{ID}") for method in ("GET", "DELETE", "DELETE")]


async def test_ids_of_snapshots_are_checked_before_they_are_sent() -> None:
    client = AsyncSandboxd(url="http://127.0.0.1:9", api_key="k")
    sandbox = client.sandboxes.connect(SANDBOX)
    for wrong in ("", "snap_/../x", "..", SANDBOX, "snap_A"):
        for call in (client.snapshots.get, client.snapshots.delete, sandbox.rollback):
            with pytest.raises(SandboxdError) as caught:
                await call(wrong)
            assert (caught.value.code, caught.value.details) == ("INVALID_ARGUMENT", {"argument": "snapshot"})
    await client.close()
