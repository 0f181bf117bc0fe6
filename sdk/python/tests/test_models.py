"""The models parse responses of older and newer services, and refuse malformed ones."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest

from sandboxd import _models as models
from scripted import RESULT, VIEW

PACKAGE = Path(__file__).resolve().parent.parent
EXECUTION: Dict[str, Any] = {
    "executionId": "ex_1",
    "sandboxId": "sb_1",
    "command": "sleep 1",
    "state": "running",
    "startedAt": "2026-01-01T00:00:00.000Z",
    "endedAt": None,
    "durationMs": None,
    "exitCode": None,
    "signal": None,
    "outputStart": "0.0",
    "outputEnd": "5.0",
    "runId": "",
    "stdinOpen": False,
    "timeoutMs": None,
}


def test_the_limits_of_an_older_service_lack_later_fields() -> None:
    amount = {"min": 1, "max": 2, "default": 1}
    limits = {
        **{f"{kind}PerMinute": 1 for kind in ("read", "write", "create", "execute")},
        **{"concurrentExecutions": 3, "executionQueue": 0, "maxOutputBytes": 1, "cpu": [2]},
        **{"memoryMb": amount, "diskMb": amount, "timeoutMs": amount, "idleTimeoutMs": amount},
    }
    older = models.Limits.from_json(limits)
    assert (older.detached_executions, older.operate_per_minute) == (None, None)
    newer = models.Limits.from_json({**limits, "detachedExecutions": 32, "operatePerMinute": 600})
    assert (newer.detached_executions, newer.operate_per_minute) == (32, 600)


def test_the_models_are_those_of_the_openapi_document() -> None:
    tool = PACKAGE / "tools" / "generate_models.py"
    if not (PACKAGE.parent.parent / "docs" / "openapi.json").exists():
        pytest.skip("needs docs/openapi.json of the repository")
    checked = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_unknown_fields_and_unknown_values_are_accepted() -> None:
    execution = models.Execution.from_json({**EXECUTION, "state": "hibernating", "colour": {"a": 1}})
    assert execution.state == "hibernating"
    assert execution.exit_code is None and execution.terminal is None and execution.cwd is None
    sized = models.Execution.from_json({**EXECUTION, "terminal": {"cols": 80, "rows": 24}})
    assert sized.terminal == models.TerminalSize(cols=80, rows=24)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stdinOpen": 1}, "stdinOpen: not a boolean"),
        ({"durationMs": True}, "durationMs: not an integer"),
        ({"command": None}, "command: not a string"),
        ({"terminal": {"cols": "80", "rows": 24}}, "terminal: cols: not an integer"),
        ({"terminal": []}, "terminal: not an object"),
    ],
)
def test_a_field_of_another_type_is_named(change: Dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        models.Execution.from_json({**EXECUTION, **change})


def test_a_missing_field_is_named() -> None:
    without = {name: value for name, value in EXECUTION.items() if name != "state"}
    with pytest.raises(ValueError, match="`state` is missing"):
        models.Execution.from_json(without)
    with pytest.raises(ValueError, match="not an object"):
        models.Execution.from_json([EXECUTION])


def test_lists_and_maps_are_parsed() -> None:
    pagination = {"limit": 1, "offset": 0, "total": 1, "hasMore": False}
    page = models.ExecutionList.from_json({"data": [EXECUTION], "pagination": pagination})
    assert page.data[0].sandbox_id == "sb_1" and page.pagination.has_more is False
    with pytest.raises(ValueError, match="data: not an array"):
        models.ExecutionList.from_json({"data": EXECUTION, "pagination": pagination})


def test_models_are_frozen_and_events_are_sent_without_absent_fields() -> None:
    event = models.EventBody(run_id="a", type="agent.error")
    assert event.to_json() == {"runId": "a", "type": "agent.error"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.run_id = "b"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_description_says_which_object_has_the_methods() -> None:
    changed: Any = models.Sandbox.from_json(VIEW)
    with pytest.raises(AttributeError, match=r"'Sandbox' object of sandboxd\.models .* 'execute': .* create\(\), connect\(\)"):
        changed.execute("ls")
    ended: Any = models.Execution.from_json(EXECUTION)
    with pytest.raises(AttributeError, match=r"'stdout': .* output\(\) returns what the command printed"):
        ended.stdout
    size: Any = models.TerminalSize(1, 2)
    with pytest.raises(AttributeError, match=r"no attribute 'height'$"):
        size.height
    # Python itself asks for such names.
    assert copy.deepcopy(changed) == pickle.loads(pickle.dumps(changed)) == changed
    assert getattr(changed, "__fspath__", None) is None


def test_a_description_is_a_dictionary_on_request() -> None:
    result = models.ExecutionResult.from_json(RESULT).to_dict()
    assert (result["stdout"], result["exit_code"], result["duration_ms"]) == ("hi\n", 0, 1)
    view = models.Sandbox.from_json(VIEW).to_dict()
    assert json.loads(json.dumps(view)) == view and view["network"]["egress"]["default"] == "allow"
