"""The timeouts of an attempt."""

from __future__ import annotations

import time
from typing import Optional


class Timeouts:
    """The timeouts of one attempt, in the form in which httpcore reads them: it calls `get` before each operation."""

    def __init__(self, limit: float, *, is_streamed: bool) -> None:
        self.limit = limit
        # A streamed body may take as long as its source: then the limit applies to each operation instead of all together.
        self._end: Optional[float] = None if is_streamed else time.monotonic() + limit

    def get(self, name: str, default: Optional[float] = None) -> float:
        """The seconds that the next operation may take."""
        if self._end is None:
            return self.limit
        # 0 would make the socket non-blocking.
        return max(self._end - time.monotonic(), 0.001)

    @property
    def is_over(self) -> bool:
        """Whether the attempt took longer than its limit."""
        return self._end is not None and time.monotonic() > self._end

    def allow_silence(self, silence: float) -> None:
        """Limits each later operation only."""
        self.limit = silence
        self._end = None
