"""The results of commands and code as text for a language model."""

from __future__ import annotations

from . import models
from ._how_it_ended import how_it_ended

LONGEST = 16_000
"""The limit of each stream in characters. The middle of a longer one is omitted, because the ends tell most."""


def tool_text(result: models.ExecutionResult, limit: float) -> str:
    """The output, and what the model must know about the end of the command. `limit` is the time limit in seconds."""
    parts = [_bounded(result.stdout)]
    if result.stderr:
        parts.append(f"stderr:\n{_bounded(result.stderr)}")
    # A service that sends no reasons kills a command only at its time limit.
    is_late = result.reason is None and result.signal == "SIGKILL" and result.duration_ms >= limit * 1000
    if result.reason == "timeout" or is_late:
        parts.append(f"killed after the time limit of {limit:g} s")
    elif result.exit_code != 0 or result.reason is not None:
        parts.append(how_it_ended(result))
    return "\n".join(part.rstrip("\n") for part in parts if part) or "(no output)"


def code_text(execution: models.CodeExecution) -> str:
    """What the code printed and showed, and what it raised."""
    parts = [_bounded(execution.stdout)]
    if execution.stderr:
        parts.append(f"stderr:\n{_bounded(execution.stderr)}")
    parts += [_bounded(result.text or result.markdown or "(a value without text)") for result in execution.results]
    raised = execution.exception
    if raised is not None:
        parts.append(_bounded(raised.plain_traceback or f"{raised.name}: {raised.value}"))
    return "\n".join(part.rstrip("\n") for part in parts if part) or "(no output)"


def _bounded(text: str) -> str:
    omitted = len(text) - LONGEST
    if omitted <= 0:
        return text
    return f"{text[: LONGEST // 2]}\n({omitted} characters omitted)\n{text[-LONGEST // 2 :]}"
