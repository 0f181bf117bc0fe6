"""
What the runs of both flavours share: an id, and the handlers and files that get the events. Errors of files do not interrupt the
program: `flush` raises the first one.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import threading
import time
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, TypeVar, Union, cast

from . import models
from ._errors import LocalFileError
from ._request import checked_run_id, random_id

_LOG = logging.getLogger("sandboxd")
OnEvent = Callable[[models.RuntimeEvent], object]
Self = TypeVar("Self", bound="EventRecorder")
_DEEPEST = 64
"""The nesting of data beyond which values are omitted, for example because a list contains itself."""
_last_id = 0
_id_lock = threading.Lock()


class EventRecorder:
    """An id, and the receivers of events. Any thread may record events."""

    def __init__(self, run_id: Optional[str] = None) -> None:
        self._id = random_id("run_") if run_id is None else checked_run_id(run_id)
        self._handlers: List[OnEvent] = []
        self._files: Dict[str, int] = {}
        self._file_error: Optional[LocalFileError] = None

    @property
    def id(self) -> str:
        """The `run_id` of the events."""
        return self._id

    def on_event(self, handler: OnEvent) -> Callable[[], None]:
        """Calls `handler` for every later event, in the thread that records it. Returns a function that removes it."""
        self._handlers.append(handler)

        def remove() -> None:
            if handler in self._handlers:
                self._handlers.remove(handler)

        return remove

    def to_file(self: Self, path: Union[str, "os.PathLike[str]"]) -> Self:
        """Appends every later event to a file, as one line of JSON. Creates the file if necessary."""
        name = os.fspath(path)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            self._files[name] = os.open(name, flags, 0o666)
        except OSError as error:
            raise LocalFileError(f"{name}: {error.strerror}") from error
        return self

    def thinking(self, text: str) -> models.RuntimeEvent:
        """Records a thought of a model."""
        return self.record("agent.thinking", {"text": text})

    def tool_call(self, tool: str, arguments: Any) -> models.RuntimeEvent:
        """Records a tool call with its arguments."""
        return self.record("agent.tool_call", {"tool": tool, "arguments": arguments})

    def tool_result(self, tool: str, result: Any) -> models.RuntimeEvent:
        """Records the result of a tool call."""
        return self.record("agent.tool_result", {"tool": tool, "result": result})

    def error(self, message: str) -> models.RuntimeEvent:
        """Records an error of the agent."""
        return self.record("agent.error", {"message": message})

    def llm_cost(
        self, *, model: str, input_tokens: int, output_tokens: int, amount: float, currency: str
    ) -> models.RuntimeEvent:
        """Records the cost of a model response. `currency` is a code such as `USD`."""
        data = {
            "model": model,
            "inputTokens": input_tokens,
            "outputTokens": output_tokens,
            "amount": amount,
            "currency": currency,
        }
        return self.record("cost.llm", data)

    def record(self, kind: str, data: Mapping[str, Any], sandbox_id: Optional[str] = None) -> models.RuntimeEvent:
        """Records any event. Values that JSON does not have are recorded as text."""
        now = time.time()
        event = models.RuntimeEvent(
            id=_next_id(int(now * 1_000_000)),
            timestamp=_timestamp(now),
            type=kind,
            sandbox_id=sandbox_id or "",
            run_id=self._id,
            data={key: _plain(value, 0) for key, value in data.items() if value is not None},
        )
        self._deliver(event)
        return event

    def _deliver(self, event: models.RuntimeEvent) -> None:
        """Files come before handlers, because a handler may be slow. An exception of a handler is logged."""
        for name, file in list(self._files.items()):
            self._append(name, file, _line(event))
        for handler in list(self._handlers):
            try:
                handler(event)
            except Exception:
                _LOG.exception("a handler of the run %s failed", self.id)

    def _append(self, name: str, file: int, line: bytes) -> None:
        try:
            # One write, so that the lines of several processes do not mix.
            if os.write(file, line) != len(line):
                raise OSError(errno.ENOSPC, "the file system is full")
        except OSError as error:
            self._file_error = self._file_error or LocalFileError(f"{name}: {error.strerror}")

    def _sync_files(self) -> None:
        """Syncs the files to disk, and raises the first error of writing them."""
        for name, file in list(self._files.items()):
            try:
                os.fsync(file)
            except OSError as error:
                # A pipe or a device cannot be synced.
                if error.errno != errno.EINVAL:
                    self._file_error = self._file_error or LocalFileError(f"{name}: {error.strerror}")
        first, self._file_error = self._file_error, None
        if first is not None:
            raise first

    def _close_files(self) -> None:
        files, self._files = self._files, {}
        for file in files.values():
            os.close(file)


def _next_id(now_us: int) -> str:
    """The time in µs, or one more than the last id: ids increase, also when the clock goes back."""
    global _last_id
    with _id_lock:
        _last_id = max(now_us, _last_id + 1)
        return f"ev_{_last_id:016}"


def _timestamp(now: float) -> str:
    text = datetime.fromtimestamp(now, timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _line(event: models.RuntimeEvent) -> bytes:
    fields = {
        "id": event.id,
        "timestamp": event.timestamp,
        "type": event.type,
        "sandboxId": event.sandbox_id,
        "runId": event.run_id,
        "data": event.data,
    }
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace") + b"\n"


def _plain(value: object, depth: int) -> Any:
    """A copy that consists of JSON values."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth == _DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        fields = cast("Mapping[object, object]", value)
        return {str(key): _plain(each, depth + 1) for key, each in fields.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = cast("Iterable[object]", value)
        return [_plain(each, depth + 1) for each in items]
    return str(value)
