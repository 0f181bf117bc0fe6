"""What a terminal delivers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from . import models


@dataclass(frozen=True)
class TerminalOutput:
    """Bytes that the terminal displays."""

    data: bytes


@dataclass(frozen=True)
class TerminalDropped:
    """Output that is no longer stored was skipped."""


@dataclass(frozen=True)
class TerminalDisconnected:
    """The connection was lost. The terminal connects again at the next read."""


@dataclass(frozen=True)
class TerminalReconnected:
    """The connection was established again."""


@dataclass(frozen=True)
class TerminalEnded:
    """The command of the terminal has ended; always the last event."""

    execution: models.Execution


TerminalEvent = Union[TerminalOutput, TerminalDropped, TerminalDisconnected, TerminalReconnected, TerminalEnded]
