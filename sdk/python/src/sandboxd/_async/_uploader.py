"""
The event uploader: sends queued `agent.*` and `cost.llm` events in batches. A single event is sent at once; after a batch the next
one waits, unless it is full or a caller flushes, because each request counts against the rate limit of the key.

A batch that is rejected because of the rate limit waits, for some minutes. A batch that fails otherwise is lost. The next flush raises
the first error.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional

from .. import models
from .._errors import ConfigurationError
from .._request import key_headers, random_id
from .._retry import Safety
from ._background import AsyncBackground
from ._payload import json_payload
from ._transport import AsyncTransport, Call

QUEUE_MAX = 4096
BATCH_INTERVAL = 2.0
"""Seconds between two batches. By default a key may write 60 times a minute, for all purposes."""
RETRY_BUDGET = 300.0
"""Seconds for which a batch waits for rate limits."""
BATCH_EVENTS_MAX = 100
BATCH_BYTES_MAX = 200 << 10
"""The service's limit for a body is 256 KiB, including the envelope."""
EVENT_DATA_BYTES = 16 << 10
"""The service's limit for the data of a posted event."""
POSTED = ("agent.thinking", "agent.tool_call", "agent.tool_result", "agent.error", "cost.llm")
"""The types that clients can post."""


class QueuedEvent(NamedTuple):
    """An event and the length of its JSON."""

    body: Dict[str, Any]
    size: int


class AsyncUploader:
    """Uploads events to one sandbox. Any thread may add events."""

    def __init__(self, transport: AsyncTransport, path: str) -> None:
        self._transport = transport
        self._path = path
        self._queue: Deque[QueuedEvent] = deque()
        self._lock = threading.Lock()
        self._is_working = False
        self._background = AsyncBackground(self._work)
        self._not_before = 0.0
        self._first_error: Optional[Exception] = None

    def push(self, event: models.RuntimeEvent) -> None:
        """Queues an event that clients can post; ignores others."""
        if event.type not in POSTED:
            return
        try:
            queued = _queued(event)
            with self._lock:
                if len(self._queue) == QUEUE_MAX:
                    raise _unsent(event, f"{QUEUE_MAX} events are queued")
                self._queue.append(queued)
                if not self._is_working:
                    self._background.start()
                    self._is_working = True
        except RuntimeError:
            self._failed(_unsent(event, "the event loop or the interpreter has ended"))
        except ConfigurationError as error:
            self._failed(error)

    async def flush(self) -> None:
        """Sends the queued events at once, waits until they are stored, and raises the first error."""
        await self._background.finish()
        error, self._first_error = self._first_error, None
        if error is not None:
            raise error

    async def _work(self) -> None:
        try:
            while True:
                pause = self._not_before - time.monotonic()
                if pause > 0 and len(self._queue) < BATCH_EVENTS_MAX:
                    await self._background.pause(pause)
                events = self._batch()
                if not events:
                    return
                try:
                    await self._post(events)
                except Exception as error:
                    self._failed(error)
                self._not_before = time.monotonic() + BATCH_INTERVAL
        except BaseException:
            with self._lock:
                self._is_working = False
            raise

    def _batch(self) -> List[Dict[str, Any]]:
        """Takes the next events off the queue. Without any, the work ends."""
        events: List[Dict[str, Any]] = []
        size = 0
        with self._lock:
            while self._queue and len(events) < BATCH_EVENTS_MAX:
                size += self._queue[0].size
                if events and size > BATCH_BYTES_MAX:
                    break
                events.append(self._queue.popleft().body)
            self._is_working = bool(events)
        return events

    async def _post(self, events: List[Dict[str, Any]]) -> None:
        headers = key_headers(random_id("key_"))
        payload = json_payload(events)
        call = Call("POST", self._path, Safety.REPEATABLE, payload, headers, max_wait=RETRY_BUDGET, ends_work=True)
        await self._transport.json(call, models.EventsRecorded.from_json)

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self._first_error = self._first_error or error


def _queued(event: models.RuntimeEvent) -> QueuedEvent:
    size = len(json.dumps(event.data, ensure_ascii=False, separators=(",", ":")).encode(errors="replace"))
    if size > EVENT_DATA_BYTES:
        raise _unsent(event, f"its data has {size} bytes, the limit is {EVENT_DATA_BYTES}")
    body = models.EventBody(event.run_id, event.type, event.data, event.timestamp).to_json()
    return QueuedEvent(body, size + 256)


def _unsent(event: models.RuntimeEvent, why: str) -> ConfigurationError:
    return ConfigurationError(f"an event {event.type} was not uploaded: {why}")
