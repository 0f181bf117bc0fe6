"""The result of a command as text for a language model."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from sandboxd import AsyncSandboxd, Sandboxd, models
from sandboxd._tool import LONGEST, code_text, tool_text


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
    assert text.splitlines()[2:] == ["", "Args:", "    command: The bash command line."]
    assert text == text.rstrip() and "Runs a bash command line" in text.splitlines()[0]


def code(**fields: Any) -> models.CodeExecution:
    ended = {"context_id": "c", "duration_ms": 1, "execution_count": 1, "results": [], "stdout": "", "stderr": "", "exception": None}
    return models.CodeExecution(**{**ended, **fields})


def test_a_model_gets_what_code_showed_and_raised_without_colors() -> None:
    shown = models.CodeResult(is_main_result=False, png="aGk=")
    main = models.CodeResult(is_main_result=True, text="2")
    assert code(results=[shown, main]).text == "2" and code(results=[shown]).text is None
    assert code_text(code(stdout="out\n", results=[shown, main])) == "out\n(a value without text)\n2"
    raised = models.CodeException(name="E", value="v", traceback="\x1b[0;31mE\x1b[0m: v\x1b[38;5;2m!")
    assert raised.plain_traceback == "E: v!"
    assert code_text(code(exception=raised)) == "E: v!" and code_text(code()) == "(no output)"


@pytest.mark.parametrize("client", [Sandboxd, AsyncSandboxd])
def test_the_tool_for_code_is_described(client: Any) -> None:
    tool = client("http://127.0.0.1:9", "k").sandboxes.connect("sb_1").as_code_tool()
    assert tool.__name__ == "python"
    assert tool.__doc__.splitlines()[2:] == ["", "Args:", "    code: The Python code."]


def test_the_middle_of_a_long_output_is_omitted() -> None:
    result = models.ExecutionResult(duration_ms=1, exit_code=0, signal=None, stdout="a" * LONGEST + "b" * 10, stderr="")
    text = tool_text(result, 1.0)
    assert text.startswith("aaa") and "(10 characters omitted)" in text and text.endswith("b" * 10)
