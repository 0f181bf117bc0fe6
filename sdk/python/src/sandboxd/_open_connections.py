"""The connections that are open, so that a client which is closed can end the calls of other threads."""

from __future__ import annotations

import threading
from typing import List
from weakref import WeakSet


class OpenConnections:
    """Connections of httpcore, as long as their owner uses them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: "WeakSet[object]" = WeakSet()

    def add(self, stream: object) -> None:
        """Keeps a weak reference to a connection."""
        with self._lock:
            self._streams.add(stream)

    def all(self) -> List[object]:
        """The connections."""
        with self._lock:
            return list(self._streams)
