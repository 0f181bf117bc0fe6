"""What code returned, as text."""

from __future__ import annotations

import re
from typing import Iterable, Optional, Protocol

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[^\[])?")


class Shown(Protocol):
    """A value that code showed."""

    @property
    def is_main_result(self) -> bool:
        """Whether it is the value of the last expression."""
        ...

    @property
    def text(self) -> Optional[str]:
        """Its text, if it has one."""
        ...


def main_text(results: Iterable[Shown]) -> Optional[str]:
    """The text of the value of the last expression."""
    return next((result.text for result in results if result.is_main_result), None)


def without_escapes(text: str) -> str:
    """The text without the sequences that color it on a terminal."""
    return _ESCAPE.sub("", text)
