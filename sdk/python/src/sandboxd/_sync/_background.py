"""Work besides the calls: the thread that uploads events. Exists twice and is not generated."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Callable, Iterable, Optional

from .. import models
from .._tar import pack
from .._tar import unpack as _unpack

ToolText = str
"""What the function of `as_tool` returns."""


def unpack(chunks: Iterable[bytes], directory: Path) -> models.Unpacked:
    """Unpacks an archive into a local directory."""
    return _unpack(chunks, directory)


class Background:
    """A thread that runs while there is work."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._thread: Optional[threading.Thread] = None
        self._hurry = threading.Event()

    def start(self) -> None:
        """Starts the thread. It does not keep the program running: `finish` waits for it."""
        self._thread = threading.Thread(target=self._work, name="sandboxd-events", daemon=True)
        self._thread.start()

    def pause(self, seconds: float) -> None:
        """Waits, unless a caller waits for the end of the work."""
        self._hurry.wait(seconds)

    def finish(self) -> None:
        """Waits for the end of the work, without pauses."""
        self._hurry.set()
        thread = self._thread
        if thread is not None:
            thread.join()
        self._hurry.clear()


__all__ = ["Background", "ToolText", "pack", "unpack"]
