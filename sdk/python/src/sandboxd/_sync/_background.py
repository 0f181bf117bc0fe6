"""Work besides the calls: threads for uploads of events and for clean-ups. Exists twice and is not generated."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Callable, Iterable, Iterator, Optional

from .. import models
from .._pack import LocalDirectory
from .._tar import unpack as _unpack

_LOG = logging.getLogger("sandboxd")
CLEANUP_TIMEOUT = 10.0
"""
How long an interrupted call waits for its clean-up, besides the waits that the service asks for. Shorter than with asyncio, because the
program is often about to end.
"""
ToolText = str
"""What the function of `as_tool` returns."""


def pack(directory: LocalDirectory) -> Iterator[bytes]:
    """The archive of a local directory."""
    return directory.chunks()


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


class Cleanups:
    """
    Clean-ups after interrupted calls. Each runs in a thread, because signals interrupt only the main thread: a second Ctrl-C ends
    the wait for a clean-up, but not the clean-up.
    """

    def __init__(self) -> None:
        self._not_before = 0.0

    def postpone(self, seconds: float) -> None:
        """Gives the clean-ups more time, because one waits for a limit."""
        self._not_before = max(self._not_before, time.monotonic() + seconds + CLEANUP_TIMEOUT)

    def run(self, name: str, work: Callable[[], None]) -> None:
        """Starts a clean-up and waits for its end, at most for `CLEANUP_TIMEOUT`, or longer if the service asks for it."""
        begin = time.monotonic()
        # A daemon thread does not keep the program running after the wait.
        thread = threading.Thread(target=_logged, args=(name, work), name="sandboxd-cleanup", daemon=True)
        thread.start()
        while thread.is_alive() and (left := max(begin + CLEANUP_TIMEOUT, self._not_before) - time.monotonic()) > 0:
            thread.join(left)
        if thread.is_alive():
            _LOG.warning("%s takes longer than %g s", name, CLEANUP_TIMEOUT)

    def finish(self) -> None:
        """Has nothing to wait for: the interrupted calls have waited."""


def _logged(name: str, work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:
        _LOG.warning("%s failed", name, exc_info=True)
