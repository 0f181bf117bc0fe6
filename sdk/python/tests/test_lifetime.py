"""A command whose timeout is longer than the rest of the sandbox's life is named before it starts."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any, Dict, List, Optional

import pytest

from sandboxd import Sandboxd, models
from sandboxd._lifetime import early_end
from scripted import DONE, EXECUTION, RESULT, VIEW, Responder, Service, answer, events

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
END = "2026-01-01T00:04:00.000Z"
WARNING = "the sandbox ends in 240 s, before the command's timeout of 600 s; set_timeout() extends it"


@pytest.mark.parametrize(
    ("fields", "timeout", "warning"),
    [
        ({"expiresAt": END}, 600, WARNING),
        ({"expiresAt": END, "onTimeout": "pause"}, 600, WARNING.replace("ends", "is paused", 1)),
        ({"expiresAt": END}, 240, None),
        ({"expiresAt": END}, 245, None),
        ({"expiresAt": END}, 252, None),
        ({"expiresAt": END}, 253, WARNING.replace("600", "253")),
        ({"expiresAt": "2026-01-01T00:00:04.000Z"}, 9, None),
        ({"expiresAt": "2026-01-01T00:00:04.000Z"}, 10, WARNING.replace("240", "4").replace("600", "10")),
        ({"expiresAt": "2025-12-31T23:59:59.000Z"}, 600, None),
        ({"expiresAt": "soon"}, 600, None),
        ({"expiresAt": "2026-01-01T00:04:00"}, 600, None),
        ({}, 600, None),
    ],
)
def test_the_end_of_the_sandbox_is_compared(fields: Dict[str, Any], timeout: float, warning: Optional[str]) -> None:
    assert early_end(models.Sandbox.from_json({**VIEW, **fields}), timeout, NOW) == warning
    assert early_end(None, timeout, NOW) is None


def test_each_known_end_is_a_warning_once_and_without_a_request(caplog: pytest.LogCaptureFixture) -> None:
    def view(seconds: int) -> Dict[str, Any]:
        end = datetime.now(timezone.utc) + timedelta(seconds=seconds)
        return {**VIEW, "expiresAt": end.isoformat(timespec="milliseconds").replace("+00:00", "Z")}

    responders: List[Responder] = [
        *[answer(201, view(100)), answer(200, RESULT), answer(200, RESULT), answer(201, EXECUTION)],
        *[answer(200, view(200)), events(DONE), answer(200, RESULT)],
    ]
    with Service(responders) as service, Sandboxd(**service.settings) as client:
        sandbox = client.sandboxes.create("i")
        sandbox.execute("x")
        assert caplog.records == []
        sandbox.execute("x", timeout="4m")
        sandbox.start("x", timeout=600)
        assert [record.name for record in caplog.records] == ["sandboxd"]
        assert "before the command's timeout of 240 s" in caplog.messages[0]
        sandbox.set_timeout(200)
        list(sandbox.stream("x", timeout=300))
        sandbox.execute("x", timeout=100)
        assert [text.partition(",")[0].rpartition(" ")[2] for text in caplog.messages] == ["s", "s"]
        assert "before the command's timeout of 300 s" in caplog.messages[1] and len(service.received) == 7
