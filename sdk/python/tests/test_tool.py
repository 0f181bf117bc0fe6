"""The result of a command as text for a language model."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from sandboxd import AsyncSandboxd, Sandboxd, models
from sandboxd._tool import LONGEST, tool_text


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ({}, "out"),
        ({"exit_code": 3}, "out\nexit code 3"),
        ({"exit_code": None, "signal": "SIGKILL", "duration_ms": 1000}, "out\nkilled after the time limit of 1 s"),
        ({"exit_code": None, "signal": "SIGKILL", "reason": "timeout"}, "out\nkilled after the time limit of 1 s"),
        ({"exit_code": None, "signal": "SIGKILL"}, "out\nkilled by SIGKILL"),
        ({"exit_code": 137, "reason": "oom", "message": "the limit is 2048 MB"}, "out\nexit code 137: the limit is 2048 MB"),
        ({"exit_code": None, "stderr": "no directory"}, "out\nstderr:\nno directory\nit could not start"),
    ],
)
def test_a_model_learns_how_the_command_ended(end: Dict[str, Any], text: str) -> None:
    fields = {"duration_ms": 1, "exit_code": 0, "signal": None, "stdout": "out\n", "stderr": "", **end}
    assert tool_text(models.ExecutionResult(**fields), 1.0) == text


@pytest.mark.parametrize("client", [Sandboxd, AsyncSandboxd])
def test_the_docstring_of_a_tool_has_no_indentation(client: Any) -> None:
    text = client("http://127.0.0.1:9", "k").sandboxes.connect("sb_1").as_tool().__doc__
    assert text.splitlines()[1:] == ["", "Args:", "    command: The bash command line."]
    assert text == text.rstrip() and "Runs a bash command line" in text.splitlines()[0]


def test_the_middle_of_a_long_output_is_omitted() -> None:
    result = models.ExecutionResult(duration_ms=1, exit_code=0, signal=None, stdout="a" * LONGEST + "b" * 10, stderr="")
    text = tool_text(result, 1.0)
    assert text.startswith("aaa") and "(10 characters omitted)" in text and text.endswith("b" * 10)
