"""A long output as text: its beginning and its end."""

from __future__ import annotations

from collections import deque
from typing import Deque, List

LONGEST_OUTPUT = 16 << 20
"""Characters of each stream, as many as the bytes that the service keeps of an attached command."""


class Capture:
    """Keeps the first and the last half of an output, so that a command that prints much does not fill the memory."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head: List[str] = []
        self._head_size = 0
        self._tail: Deque[str] = deque()
        self._tail_size = 0
        self._omitted = 0

    @property
    def is_truncated(self) -> bool:
        """Whether a part was omitted."""
        return self._omitted > 0

    def push(self, text: str) -> None:
        """Adds the next part of the output."""
        room = self._half - self._head_size
        if room > 0:
            self._head.append(text[:room])
            self._head_size += len(self._head[-1])
            text = text[room:]
        if not text:
            return
        self._tail.append(text)
        self._tail_size += len(text)
        while self._tail_size > self._half:
            excess = self._tail_size - self._half
            first = self._tail.popleft()
            if len(first) > excess:
                self._tail.appendleft(first[excess:])
            cut = min(len(first), excess)
            self._tail_size -= cut
            self._omitted += cut

    def text(self) -> str:
        """The output, with a line in place of an omitted part."""
        head, tail = "".join(self._head), "".join(self._tail)
        if not self._omitted:
            return head + tail
        line_end = "" if head.endswith("\n") else "\n"
        return f"{head}{line_end}[... {self._omitted} characters are missing here ...]\n{tail}"
