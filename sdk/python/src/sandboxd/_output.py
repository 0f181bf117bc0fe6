"""The output of commands as a sequence of lines, from Server-Sent Events."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Optional, Union

from . import models
from ._errors import InternalError, NetworkError, RateLimited, ResourceExhausted, SandboxdError, UnknownError, of_event
from ._sse import Event

LONGEST_SILENCE = 60.0
"""Longer than the pause between two comments of the service."""
PASSING = (NetworkError, ResourceExhausted, RateLimited, InternalError)
"""The errors after which a new connection may succeed."""


@dataclass(frozen=True)
class Stdout:
    """A line of standard output, without its line end unless the stream has line ends."""

    line: str


@dataclass(frozen=True)
class Stderr:
    """A line of standard error."""

    line: str


@dataclass(frozen=True)
class Dropped:
    """Output that is no longer stored. Only detached executions have it."""

    bytes: int


Output = Union[Stdout, Stderr, Dropped, models.Done]
"""A part of the output. `Done` is the last one."""


def parse_output(event: Event, line_ends: bool) -> Optional[Output]:
    """The output in an event; None for an event that this version does not know. Raises the error in an event `error`."""
    if event.name == "stdout":
        return Stdout(_line(event, line_ends))
    if event.name == "stderr":
        return Stderr(_line(event, line_ends))
    if event.name == "error":
        raise error_of(event)
    try:
        if event.name == "done":
            return models.Done.from_json(json.loads(event.data))
        if event.name == "dropped":
            counts = json.loads(event.data)
            return Dropped(int(counts.get("stdout", 0)) + int(counts.get("stderr", 0)))
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise UnknownError(f"the event '{event.name}' of the stream cannot be parsed", status=200) from cause
    return None


def error_of(event: Event) -> SandboxdError:
    """The error in an event `error`."""
    unknown = "the stream ended with an error that cannot be parsed"
    return of_event(event.data) or UnknownError(unknown, status=200)


def _line(event: Event, with_end: bool) -> str:
    """The line: a line feed within an event stands for a carriage return of the command."""
    text = event.data.replace("\n", "\r")
    if not with_end or event.end == "none":
        return text
    return text + ("\r\n" if event.end == "crlf" else "\n")


def size_between(start: str, end: str) -> int:
    """The bytes of both streams between two output offsets."""
    return sum(map(int, end.split("."))) - sum(map(int, start.split(".")))


def offset_before_end(start: str, end: str, size: int) -> str:
    """The output offset `size` bytes before the end of each stream, or where the stored output starts."""
    pairs = zip(start.split("."), end.split("."))
    return ".".join(str(max(int(first), int(last) - size)) for first, last in pairs)
