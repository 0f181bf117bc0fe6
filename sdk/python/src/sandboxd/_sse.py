"""A parser of `text/event-stream`."""

from __future__ import annotations

from typing import List, NamedTuple, Optional

LONGEST = 64 << 20
"""Bytes of one event; longer ones are refused before they fill the memory."""
LONGEST_END = 8
_BOM = "\ufeff".encode()


class TooLong(Exception):
    """An event exceeds the limit."""


class Event(NamedTuple):
    """One event of a stream."""

    name: str
    data: str
    id: Optional[str]
    end: Optional[str] = None
    """How the line of output ended, if not just with a line feed: an extension of the service."""


class Parser:
    """Parses chunks of bytes, which may be split anywhere."""

    def __init__(self) -> None:
        self.last_id: Optional[str] = None
        """The last id received, for `Last-Event-ID` after a lost connection."""
        self._line = bytearray()
        self._after_cr = False
        self._has_begun = False
        self._name = ""
        self._data: List[str] = []
        self._size = 0
        self._id: Optional[str] = None
        self._end: Optional[str] = None

    def push(self, chunk: bytes) -> List[Event]:
        """The events that the chunk completes."""
        events: List[Event] = []
        start = 0
        if self._after_cr and chunk:
            self._after_cr = False
            start = 1 if chunk[:1] == b"\n" else 0
        while True:
            end, following = _line_end(chunk, start)
            if end < 0:
                self._make_room(len(chunk) - start)
                self._line += chunk[start:]
                return events
            self._make_room(end - start)
            if following == len(chunk) and chunk[end:] == b"\r":
                self._after_cr = True
            line = bytes(self._line) + chunk[start:end]
            self._line.clear()
            event = self._take(line)
            if event is not None:
                events.append(event)
            start = following

    def _make_room(self, more: int) -> None:
        if len(self._line) + self._size + more > LONGEST:
            raise TooLong(f"an event of the stream is longer than {LONGEST} bytes")

    def _take(self, line: bytes) -> Optional[Event]:
        if not self._has_begun:
            self._has_begun = True
            line = line[len(_BOM) :] if line.startswith(_BOM) else line
        if not line:
            return self._end_event()
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            self._data.append(value.decode(errors="replace"))
            self._size += len(value) + 1
        elif field == b"event":
            self._name = value.decode(errors="replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode(errors="replace")
        elif field == b"end" and len(value) <= LONGEST_END:
            self._end = value.decode(errors="replace")
        return None

    def _end_event(self) -> Optional[Event]:
        self.last_id = self._id
        name, data, end = self._name, self._data, self._end
        self._name, self._data, self._end, self._size = "", [], None, 0
        if not data:
            return None
        return Event(name or "message", "\n".join(data), self._id, end)


def _line_end(chunk: bytes, start: int) -> "tuple[int, int]":
    """Where the line ends and the next one starts; -1 if it does not end in the chunk."""
    feed = chunk.find(b"\n", start)
    ret = chunk.find(b"\r", start, feed if feed >= 0 else len(chunk))
    if ret < 0:
        return feed, feed + 1
    return ret, ret + 2 if chunk[ret + 1 : ret + 2] == b"\n" else ret + 1
