"""Runs: what a program and its sandboxes do, as one stream of events with a common run id, for handlers, files and the service."""

from __future__ import annotations

from types import TracebackType
from typing import List, Optional, Protocol, Type

from .. import models
from .._recorder import EventRecorder
from ._context import AsyncSandboxContext
from ._uploader import AsyncUploader


class AsyncHasContext(Protocol):
    """An object that has a sandbox context; a sandbox."""

    @property
    def context(self) -> AsyncSandboxContext:
        """The context."""
        ...


class AsyncRun(EventRecorder):
    """
    A run of a program: an id and the receivers of its events. Without an id it has a new one. As a context manager, it is flushed and
    closed at the end of the block.
    """

    def __init__(self, run_id: Optional[str] = None) -> None:
        super().__init__(run_id)
        self._uploaders: List[AsyncUploader] = []

    def __repr__(self) -> str:
        # A traceback may show an object whose id is wrong.
        run_id = repr(self.id) if "_id" in vars(self) else ""
        return f"{type(self).__name__}({run_id})"

    def to_service(self, sandbox: AsyncHasContext) -> AsyncRun:
        """
        Uploads `agent.*` and `cost.llm` events to the events of a sandbox. Recording does not wait: the events of 2 seconds are sent
        in one batch, and `flush` waits until all are stored.
        """
        self._uploaders.append(AsyncUploader(sandbox.context.transport, sandbox.context.path("/events")))
        return self

    async def flush(self) -> None:
        """Waits until all events so far are uploaded and on disk, and raises the first error of an upload or of a file."""
        first: Optional[Exception] = None
        for uploader in self._uploaders:
            try:
                await uploader.flush()
            except Exception as error:
                first = first or error
        if first is not None:
            raise first
        self._sync_files()

    async def close(self) -> None:
        """Flushes, and closes the files."""
        try:
            await self.flush()
        finally:
            self._close_files()

    async def __aenter__(self) -> AsyncRun:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.close()

    def _deliver(self, event: models.RuntimeEvent) -> None:
        for uploader in self._uploaders:
            uploader.push(event)
        super()._deliver(event)
