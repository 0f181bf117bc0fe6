"""
The queues of calls that wait for a rate limit, in the order in which they were made. When the service refuses a call, that call and
later ones of its kind are queued. After `Retry-After` the first one is sent again, and then the others, a moment apart: if the service
refuses the first, the others learn it before they are sent. Threads and tasks share the object, which neither waits nor reads a clock.

    sent -> refused -> queued until `Retry-After`, and until the calls before it are sent -> sent again
"""

from __future__ import annotations

import itertools
import math
import threading
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Set

from ._errors import SandboxdError

CONCURRENCY = frozenset(("limits.concurrent_executions",))
"""The settings of limits of calls at a time: such a limit ends when a call returns, often before `Retry-After`."""
CHECK = 0.02
"""Seconds after which a call asks whether another one of its kind has returned."""
UNANNOUNCED = 5.0
"""Seconds that calls may wait beyond what was announced before another announcement."""
SPACING = 0.05
"""Seconds between two calls that leave a queue: longer than a refusal usually takes."""


@dataclass
class _Queue:
    """The calls of one kind that wait. Exists only as long as there are any."""

    limit: str
    """The limit that refused the last call."""
    opens_at: float = 0.0
    last_sent: float = 0.0
    places: int = 0
    """How many calls of this client have returned since the last refusal, so that as many may be sent at once."""
    numbers: List[int] = field(default_factory=lambda: [])
    """The numbers of the calls, the smallest first."""

    def place(self, number: int) -> Optional[int]:
        """How many calls are before this one; None if it is not queued."""
        place = bisect_left(self.numbers, number)
        return place if place < len(self.numbers) and self.numbers[place] == number else None


class LimitQueues:
    """The waiting calls of a client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._queues: Dict[str, _Queue] = {}
        self._in_flight: Dict[str, int] = {}
        self._waiting: Dict[str, Set[int]] = {}
        """The calls that wait or waited for a limit, and are not over."""
        self._announced: Dict[str, float] = {}
        """Until when calls wait for a limit, according to its last announcement."""

    def number(self) -> int:
        """The number of a new call. Calls with smaller ones are sent first."""
        return next(self._numbers)

    def join(self, kind: str, number: int) -> None:
        """Queues a new call if others of its kind wait, so that it does not overtake them."""
        with self._lock:
            queue = self._queues.get(kind)
            if queue is not None:
                insort(queue.numbers, number)
                self._waiting.setdefault(queue.limit, set()).add(number)

    def requeue(self, kind: str, number: int, error: SandboxdError, until: float) -> None:
        """Queues a call that was refused. No call of its queue is sent before `until`."""
        with self._lock:
            limit = _limit_id(error)
            queue = self._queues.setdefault(kind, _Queue(limit))
            queue.limit = limit
            queue.opens_at = max(queue.opens_at, until)
            queue.places = 0
            insort(queue.numbers, number)

    def delay(self, kind: str, number: int, now: float) -> float:
        """The seconds after which the call should ask again. With 0 it is not queued any more, and is sent at once."""
        with self._lock:
            queue = self._queues.get(kind)
            place = None if queue is None else queue.place(number)
            if queue is None or place is None:
                return 0.0
            if place == 0 and queue.places > 0:
                queue.places -= 1
                self._remove(kind, queue, place)
                return 0.0
            ready_at = max(queue.opens_at, queue.last_sent + SPACING) + place * SPACING
            if now < ready_at:
                return self._shortened(kind, queue, place, ready_at - now)
            if place > 0:
                # The calls before it are about to be sent.
                return SPACING
            queue.last_sent = now
            self._remove(kind, queue, place)
            return 0.0

    def begin(self, kind: str) -> None:
        """Counts a call that is sent and whose return ends its share of a limit."""
        with self._lock:
            self._in_flight[kind] = self._in_flight.get(kind, 0) + 1

    def returned(self, kind: str, *, is_refused: bool) -> None:
        """Ends what `begin` counted. Unless the call was refused, the first that waits for a limit of calls at a time is sent."""
        with self._lock:
            self._in_flight[kind] -= 1
            if not self._in_flight[kind]:
                del self._in_flight[kind]
            queue = self._queues.get(kind)
            if queue is not None and not is_refused and queue.limit in CONCURRENCY:
                queue.places += 1

    def leave(self, kind: str, number: int) -> None:
        """Removes a call from its queue. It is sent, or fails."""
        with self._lock:
            queue = self._queues.get(kind)
            place = None if queue is None else queue.place(number)
            if queue is not None and place is not None:
                self._remove(kind, queue, place)

    def notice(self, number: int, error: SandboxdError, pause: float, now: float, *, waited: float = 0.0) -> Optional[str]:
        """
        The announcement of the wait of a call, which has waited for `waited` seconds already; None if the last announcement of the limit
        covers it.
        """
        with self._lock:
            limit = _limit_id(error)
            self._waiting.setdefault(limit, set()).add(number)
            until = now + pause
            if until <= self._announced.get(limit, -math.inf) + UNANNOUNCED:
                return None
            self._announced[limit] = until
            calls = len(self._waiting[limit])
        text = wait_text(error, pause, waited)
        return text if calls == 1 else f"{text} ({calls} calls wait)"

    def end(self, kind: str, number: int) -> None:
        """Forgets a call that is over."""
        self.leave(kind, number)
        with self._lock:
            for limit in [limit for limit, waiting in self._waiting.items() if number in waiting]:
                self._waiting[limit].remove(number)
                if not self._waiting[limit]:
                    del self._waiting[limit]
                    self._announced.pop(limit, None)

    def _shortened(self, kind: str, queue: _Queue, place: int, delay: float) -> float:
        """The delay, or less while a call is in flight whose return ends the limit."""
        is_in_flight = queue.places > 0 or kind in self._in_flight
        return min(delay, CHECK * (place + 1)) if is_in_flight and queue.limit in CONCURRENCY else delay

    def _remove(self, kind: str, queue: _Queue, place: int) -> None:
        del queue.numbers[place]
        if not queue.numbers:
            del self._queues[kind]


def wait_text(error: SandboxdError, pause: float, waited: float = 0.0) -> str:
    """What a call waits for, how long, how long it has waited, and who can change it."""
    limit, value, key = (error.details.get(name) for name in ("limit", "value", "key"))
    so_far = f", after {waited:.0f} s" if waited >= 1 else ""
    wait = f"waiting {math.ceil(pause)} s{so_far}"
    if not isinstance(limit, str) or not isinstance(value, int):
        return f"{wait}: {error.message}"
    setting = f"; the operator sets {key}" if isinstance(key, str) else ""
    return f"{value} {limit}: {wait}{setting}"


def _limit_id(error: SandboxdError) -> str:
    """The same for all refusals because of a limit, or of a condition of the service."""
    names = (error.details.get(name) for name in ("key", "limit", "condition"))
    return next((name for name in names if isinstance(name, str)), error.code_name)
