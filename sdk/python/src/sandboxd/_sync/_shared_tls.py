"""A TLS connection that one thread reads and others write."""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
import time
from typing import Any, Callable, Optional, TypeVar

T = TypeVar("T")
# Unlike epoll, these use no file descriptor.
_SELECTOR = getattr(selectors, "PollSelector", selectors.SelectSelector)


class SharedTls:
    """
    The calls of websockets' blocking connection, whose thread reads while others write.

    OpenSSL does not allow that on one connection, and Python before 3.13 does not prevent it: now and then a request is lost,
    mostly the first, because the server's session tickets arrive at the same time. Here at most one thread is in OpenSSL, and
    none waits there.
    """

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection = connection
        self._turn = threading.Lock()
        self._timeout: Optional[float] = None
        connection.settimeout(0)

    def settimeout(self, seconds: Optional[float]) -> None:
        """The longest time of a call; None has no end."""
        self._timeout = seconds

    def recv(self, size: int) -> bytes:
        """The next bytes, none at the end. Fails with OSError or TimeoutError."""
        return self._repeated(lambda: self._connection.recv(size), selectors.EVENT_READ)

    def sendall(self, data: bytes) -> None:
        """Sends the bytes. Fails with OSError or TimeoutError."""
        rest = memoryview(data)
        while rest:
            sent = self._repeated(lambda: self._connection.send(rest), selectors.EVENT_WRITE)
            rest = rest[sent:]

    def shutdown(self, how: int) -> None:
        """Ends the TCP connection, which wakes a waiting thread."""
        # Below TLS, because the session may be in use.
        socket.socket.shutdown(self._connection, how)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def getsockname(self) -> Any:
        """The local address."""
        return self._connection.getsockname()

    def getpeername(self) -> Any:
        """The address of the service."""
        return self._connection.getpeername()

    def _repeated(self, call: Callable[[], T], event: int) -> T:
        """The result of the call, made again whenever the connection is ready, until it need not wait."""
        end = None if self._timeout is None else time.monotonic() + self._timeout
        while True:
            try:
                with self._turn:
                    return call()
            except ssl.SSLWantReadError:
                needed = selectors.EVENT_READ
            except ssl.SSLWantWriteError:
                needed = selectors.EVENT_WRITE
            except BlockingIOError:
                needed = event
            self._wait(needed, end)

    def _wait(self, event: int, end: Optional[float]) -> None:
        left = None if end is None else end - time.monotonic()
        with _SELECTOR() as selector:
            selector.register(self._connection, event)
            if (left is not None and left <= 0) or not selector.select(left):
                raise TimeoutError("the connection was not ready in time")
