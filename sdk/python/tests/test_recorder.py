"""Events of a run reach files and handlers, whatever their data."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, List

import pytest

from sandboxd import ConfigurationError, LocalFileError, RuntimeEvent
from sandboxd import _recorder as recorder
from sandboxd._async._run import AsyncRun
from sandboxd._sync._run import Run


def test_events_are_lines_of_json(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with Run("a").to_file(file) as run:
        run.tool_call("shell", {"command": "ls"})
        run.llm_cost(model="m-1", input_tokens=900, output_tokens=50, amount=0.004, currency="USD")
    with Run("b").to_file(file) as run:
        run.thinking("ä\n")
    events = [RuntimeEvent.from_json(json.loads(line)) for line in file.read_bytes().splitlines()]
    assert [(event.run_id, event.type) for event in events] == [
        ("a", "agent.tool_call"),
        ("a", "cost.llm"),
        ("b", "agent.thinking"),
    ]
    assert events[1].data["inputTokens"] == 900 and events[2].data == {"text": "ä\n"}
    assert sorted(event.id for event in events) == [event.id for event in events]
    assert all(len(event.id) == 19 and event.timestamp.endswith("Z") for event in events)


def test_data_that_json_does_not_have_is_recorded(tmp_path: Path) -> None:
    endless: List[Any] = []
    endless.append(endless)
    with Run().to_file(tmp_path / "a") as run:
        data = {"nan": float("nan"), "path": tmp_path, "set": {1}, "half": "\ud800", "endless": endless, 1: b"x"}
        event = run.tool_result("t", data)
    (line,) = (tmp_path / "a").read_text().splitlines()
    result = json.loads(line)["data"]["result"]
    assert result["nan"] == "nan" and result["path"] == str(tmp_path) and result["set"] == [1] and "1" in result
    assert event.data["result"]["half"] == "\ud800"


def test_an_event_is_a_snapshot() -> None:
    arguments = {"a": [1]}
    event = Run().tool_call("t", arguments)
    arguments["a"].append(2)
    assert event.data == {"tool": "t", "arguments": {"a": [1]}}


def test_an_unwritable_file_is_reported_by_the_flush(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    run = Run().to_file("/dev/full")
    run.thinking("a")
    with pytest.raises(LocalFileError, match="/dev/full"):
        run.flush()
    run.close()
    with pytest.raises(LocalFileError, match="missing"):
        Run().to_file(tmp_path / "missing" / "file")


def test_handlers_can_be_removed() -> None:
    run = Run()
    seen: List[RuntimeEvent] = []
    remove = run.on_event(seen.append)
    run.thinking("a")
    remove()
    remove()
    run.thinking("b")
    assert [event.data["text"] for event in seen] == ["a"]


@pytest.mark.parametrize("run_id", ["", "a b", "ä", "x" * 129, "a\n"])
def test_invalid_run_ids_are_refused(run_id: str) -> None:
    with pytest.raises(ConfigurationError):
        Run(run_id)


def test_ids_ascend_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([2_000_000_000.0, 2_000_000_000.0, 1_999_999_999.0])
    monkeypatch.setattr(recorder, "_last_id", 0)
    monkeypatch.setattr("time.time", lambda: next(times))
    ids = [Run("a").thinking("x").id for _ in range(3)]
    assert ids == sorted(set(ids)) and {len(each) for each in ids} == {19}


def test_an_event_after_the_loop_is_reported() -> None:
    class Transport:
        pass

    class Context:
        transport: Any = Transport()

        def path(self, rest: str) -> str:
            return rest

    class Sandbox:
        context: Any = Context()

    async def started() -> AsyncRun:
        return AsyncRun().to_service(Sandbox())

    run = asyncio.run(started())
    run.thinking("a")

    with pytest.raises(ConfigurationError, match="has ended"):
        asyncio.run(flushed(run))


async def flushed(run: AsyncRun) -> None:
    await run.flush()
