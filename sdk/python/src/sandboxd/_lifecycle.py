"""Lifecycle events of a sandbox, for the handlers of `on`. Calls of an object report what they cause and observe."""

from __future__ import annotations

import inspect
import logging
import threading
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, TypedDict, Union, cast

from ._errors import SandboxdError, argument_error


@dataclass(frozen=True)
class Started:
    """The sandbox was created and runs."""


@dataclass(frozen=True)
class Paused:
    """The sandbox was paused."""

    runtime_duration_ms: int
    """The total running time so far."""


@dataclass(frozen=True)
class Resumed:
    """The sandbox was resumed."""

    paused_duration_ms: int


@dataclass(frozen=True)
class Terminated:
    """The sandbox is terminated. Reported once."""

    reason: str
    """`deleted` on request, `timeout` when its running time was used up, `expired` when it was paused for too long."""
    total_runtime_ms: Optional[int] = None
    """The total running time; None if the call found the sandbox terminated."""
    terminated_at: Optional[str] = None


@dataclass(frozen=True)
class CallFailed:
    """A call failed."""

    error: SandboxdError


_LOG = logging.getLogger("sandboxd")
LifecycleEvent = Union[Started, Paused, Resumed, Terminated, CallFailed]
Handler = Callable[[Any], object]


class LifecycleHandlers(TypedDict, total=False):
    """Handlers of lifecycle events by name."""

    started: Callable[[Started], object]
    """The sandbox was created and runs."""
    paused: Callable[[Paused], object]
    """A call of the object paused the sandbox."""
    resumed: Callable[[Resumed], object]
    """A call of the object resumed the sandbox."""
    terminated: Callable[[Terminated], object]
    """The sandbox is terminated."""
    failed: Callable[[CallFailed], object]
    """A call of the object failed."""


EVENTS: Dict[str, type] = {
    "started": Started,
    "paused": Paused,
    "resumed": Resumed,
    "terminated": Terminated,
    "failed": CallFailed,
}
"""The lifecycle events by name."""


class Handlers:
    """The registered handlers of a sandbox. They run in the call that causes the event, without threads or tasks."""

    def __init__(self) -> None:
        self._handlers: Dict[type, List[Handler]] = {}
        self._lock = threading.Lock()

    def add(self, name: str, handler: Handler) -> Callable[[], None]:
        """Registers a handler, and returns a function that removes it."""
        event = EVENTS.get(name)
        if event is None:
            raise argument_error("name", f"{name!r} is not one of {', '.join(EVENTS)}")
        if inspect.iscoroutinefunction(handler):
            raise argument_error("handler", "a handler is a function, not a coroutine function")
        with self._lock:
            self._handlers.setdefault(event, []).append(handler)

        def remove() -> None:
            with self._lock:
                if handler in self._handlers[event]:
                    self._handlers[event].remove(handler)

        return remove

    def add_all(self, handlers: LifecycleHandlers) -> None:
        """Registers several handlers."""
        for name, handler in cast("Mapping[str, Handler]", handlers).items():
            self.add(name, handler)

    def notify(self, event: LifecycleEvent) -> None:
        """Calls the handlers of an event. An exception of a handler is logged: the call that caused the event has happened."""
        with self._lock:
            # A copy, because a handler may add another.
            handlers = list(self._handlers.get(type(event), ()))
        for handler in handlers:
            try:
                handler(event)
            except Exception:
                _LOG.exception("a handler of the event %s failed", type(event).__name__)
