"""What the log of a build delivers."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import Deque, Optional, Union

from . import _fields, models
from ._errors import UnknownError
from ._fields import Fields
from ._how_it_ended import LONGEST_TAIL
from ._output import Stderr, Stdout, error_of
from ._sse import Event


@dataclass(frozen=True)
class BuildStep:
    """A step begins, or its result comes from the cache."""

    number: int
    """From 1 on."""
    total: int
    line: int
    """The line in the Dockerfile."""
    text: str
    """The instruction, shortened."""
    cached: bool

    @classmethod
    def from_json(cls, value: object) -> BuildStep:
        """Parses a JSON object. Raises ValueError if a field is missing or has another type."""
        fields = Fields(value)
        return cls(
            number=fields.required("number", _fields.integer),
            total=fields.required("total", _fields.integer),
            line=fields.required("line", _fields.integer),
            text=fields.required("text", _fields.text),
            cached=fields.required("cached", _fields.boolean),
        )


@dataclass(frozen=True)
class BuildNote:
    """A remark of the service."""

    text: str


@dataclass(frozen=True)
class BuildDone:
    """The build is over."""

    template: models.Template


BuildEvent = Union[BuildStep, Stdout, Stderr, BuildNote, BuildDone]
"""An event in the log of a build. `BuildDone` is the last one."""


class StepOutput:
    """The end of the output of the step that runs, for the error of a build that fails."""

    def __init__(self) -> None:
        # More lines than an error shows, and not more of a line.
        self._lines: Deque[str] = deque(maxlen=LONGEST_TAIL)

    def add(self, event: BuildEvent) -> None:
        """Adds an event of the log."""
        if isinstance(event, BuildStep):
            self._lines.clear()
        elif isinstance(event, (Stdout, Stderr)):
            self._lines.append(event.line[-LONGEST_TAIL:])

    def text(self) -> str:
        """The lines so far; the error truncates them."""
        return "\n".join(self._lines)


def parse_build_event(event: Event) -> Optional[BuildEvent]:
    """The event; None for one that this version does not know. Raises the error in an event `error`."""
    if event.name == "stdout":
        return Stdout(event.data)
    if event.name == "stderr":
        return Stderr(event.data)
    if event.name == "note":
        return BuildNote(event.data)
    if event.name == "error":
        raise error_of(event)
    try:
        if event.name == "step":
            return BuildStep.from_json(json.loads(event.data))
        if event.name == "done":
            return BuildDone(models.Template.from_json(json.loads(event.data)))
    except ValueError as cause:
        raise UnknownError(f"the event '{event.name}' of the stream cannot be parsed", status=200) from cause
    return None
