"""How a command ended, in words, and the end of its output."""

from __future__ import annotations

from typing import Optional, Protocol

LONGEST_TAIL = 2000
"""Characters of the end of an output in an error."""


class Ended(Protocol):
    """The end of a command."""

    @property
    def exit_code(self) -> Optional[int]:
        """Its exit code."""
        ...

    @property
    def signal(self) -> Optional[str]:
        """The signal that killed bash."""
        ...

    @property
    def reason(self) -> Optional[str]:
        """Why it was killed."""
        ...

    @property
    def message(self) -> Optional[str]:
        """What happened, in a sentence of the service."""
        ...


def how_it_ended(end: Ended) -> str:
    """How a command ended, in words: those of the service if it killed the command. Unknown reasons are passed on."""
    status = f"exit code {end.exit_code}"
    if end.signal is not None:
        status = f"killed by {end.signal}"
    elif end.exit_code is None:
        status = "it could not start" if end.reason is None else "killed"
    # Of a signal the service says no more.
    return status if end.reason in (None, "signal") else f"{status}: {end.message or end.reason}"


def not_started(end: Ended, stderr: str) -> Optional[str]:
    """Why a command could not start, from its standard error, where the service says it; None if it started."""
    if end.exit_code is not None or end.signal is not None or end.reason is not None:
        return None
    return stderr.rstrip().rpartition("\n")[2] or None


def tail(text: str) -> str:
    """The end of an output, from the beginning of a line if possible."""
    text = text.rstrip()
    if len(text) <= LONGEST_TAIL:
        return text
    cut = text[-LONGEST_TAIL:]
    begin = cut.find("\n") + 1
    return f"[...]\n{cut[begin:]}"
