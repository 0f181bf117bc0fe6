"""Work besides the calls: threads for blocking code, uploads of events, and clean-ups. Exists twice and is not generated."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, List, Optional, Set

from .. import _tar
from .. import models
from .._pack import LocalDirectory

_LOG = logging.getLogger("sandboxd")
CLEANUP_GRACE = 2.0
"""How long a cancelled call waits for its clean-up, so that the end of the event loop does not interrupt it."""
CLEANUP_TIMEOUT = 30.0
"""How long a clean-up may take, besides the waits that the service asks for."""
ToolText = Awaitable[str]
"""What the function of `as_tool` returns."""


async def pack(directory: LocalDirectory) -> AsyncIterator[bytes]:
    """The archive of a local directory. It is read in another thread, because a disk may be slow."""
    packing = directory.chunks()
    while True:
        chunk = await asyncio.to_thread(next, packing, None)
        if chunk is None:
            return
        yield chunk


async def unpack(chunks: AsyncIterable[bytes], directory: Path) -> models.Unpacked:
    """Unpacks an archive into a local directory, in another thread. Cancelling it ends the thread."""
    loop = asyncio.get_running_loop()
    received = chunks.__aiter__()
    # The one chunk that is being received, so that it can be cancelled.
    receiving: List["Future[Optional[bytes]]"] = []
    is_cancelled = False

    async def receive() -> Optional[bytes]:
        try:
            return await received.__anext__()
        except StopAsyncIteration:
            return None

    def pulled() -> Iterator[bytes]:
        while not is_cancelled:
            receiving[:] = [asyncio.run_coroutine_threadsafe(receive(), loop)]
            chunk = receiving[0].result()
            if chunk is None:
                return
            yield chunk

    unpacking = asyncio.ensure_future(asyncio.to_thread(_tar.unpack, pulled(), directory))
    try:
        return await asyncio.shield(unpacking)
    except asyncio.CancelledError:
        is_cancelled = True
        for each in receiving:
            each.cancel()
        # The thread must not write after the call has ended.
        await asyncio.wait([unpacking])
        if not unpacking.cancelled():
            unpacking.exception()
        raise


class AsyncBackground:
    """A task that runs while there is work. Work that arrives in another thread is passed to the loop of this object."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._tasks: Set["asyncio.Task[Any]"] = set()
        self._hurry = asyncio.Event()

    def start(self) -> None:
        """Starts the task. Fails with RuntimeError if its event loop has ended."""
        self._loop.call_soon_threadsafe(self._begin)

    async def pause(self, seconds: float) -> None:
        """Waits, unless a caller waits for the end of the work."""
        try:
            await asyncio.wait_for(self._hurry.wait(), seconds)
        except asyncio.TimeoutError:
            pass

    async def finish(self) -> None:
        """Waits for the end of the work, without pauses."""
        self._hurry.set()
        # The loop begins the tasks that were started before.
        await asyncio.sleep(0)
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        self._hurry.clear()

    def _begin(self) -> None:
        task = self._loop.create_task(self._awaited())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _awaited(self) -> None:
        await self._work()


class AsyncCleanups:
    """Clean-ups after cancelled calls. They continue without their callers, for a limited time."""

    def __init__(self) -> None:
        self._tasks: Set["asyncio.Task[None]"] = set()
        self._not_before = 0.0

    def postpone(self, seconds: float) -> None:
        """Gives the clean-ups more time, because one waits for a limit."""
        self._not_before = max(self._not_before, time.monotonic() + seconds + CLEANUP_TIMEOUT)

    async def run(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Starts a clean-up and waits for its end, at most for `CLEANUP_GRACE`."""
        task = asyncio.get_running_loop().create_task(self._limited(name, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Unlike `wait_for`, `wait` does not cancel the task.
        await asyncio.wait([task], timeout=CLEANUP_GRACE)

    async def finish(self) -> None:
        """Waits for the end of the clean-ups of this event loop."""
        loop = asyncio.get_running_loop()
        while tasks := [task for task in self._tasks if task.get_loop() is loop]:
            await asyncio.wait(tasks)

    async def _limited(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        begin = time.monotonic()
        task = asyncio.ensure_future(work())
        try:
            while not task.done():
                left = max(begin + CLEANUP_TIMEOUT, self._not_before) - time.monotonic()
                if left <= 0:
                    raise asyncio.TimeoutError
                await asyncio.wait([task], timeout=left)
            task.result()
        except Exception:
            _LOG.warning("%s failed", name, exc_info=True)
        finally:
            task.cancel()
