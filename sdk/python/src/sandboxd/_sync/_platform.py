"""What differs between the two flavours beyond `async` and `await`: this module exists twice and is not generated."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO, Generic, Iterable, Iterator, Mapping, Optional, Protocol, Tuple, Type, TypeVar, Union
from typing import cast

import httpx
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from .._partial_file import PartialFile
from .._secrets import SOCKET_LOG
from ._shared_tls import SharedTls

T = TypeVar("T")
TIMEOUTS = (TimeoutError,)
CANCELLED: Tuple[Type[BaseException], ...] = (KeyboardInterrupt, SystemExit)
"""What an interrupted call raises: a signal handler raises it in the main thread."""
KILLED_ON_CANCEL = False
"""Whether `execute` sends no idempotency key by default. A blocking call sends one, so that it is retried."""
LARGEST_MESSAGE = 64 << 20
Content = Union[str, bytes, bytearray, memoryview, "os.PathLike[str]", BinaryIO, Iterable[bytes]]
"""Content to send: text, bytes, the path of a local file, an open binary file, or an iterator of bytes."""
_CHUNK = 256 << 10


def sleep(seconds: float) -> None:
    """Waits."""
    time.sleep(seconds)


def opening(created: T) -> T:
    """The object itself."""
    return created


class Iterated:
    """The base of what is iterated. With asyncio it refuses loops without `async`."""


class Starts(Protocol):
    """A stream that connects."""

    def start(self) -> object:
        """Connects."""
        ...


S = TypeVar("S", bound=Starts)


def begun(stream: S) -> S:
    """The stream, after it has connected."""
    stream.start()
    return stream


def chunks_of(content: Any) -> Iterator[bytes]:
    """The chunks of a path, a file or an iterator."""
    if isinstance(content, os.PathLike):
        with open(cast("os.PathLike[str]", content), "rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    elif hasattr(content, "read"):
        while chunk := content.read(_CHUNK):
            yield chunk
    else:
        yield from content


def store(chunks: Iterable[bytes], target: Path) -> None:
    """Writes a file."""
    with PartialFile(target) as file:
        for chunk in chunks:
            file.write(chunk)


class Abandoning:
    """Closes a response whose object is collected while it is still open."""

    def close(self, response: httpx.Response) -> None:
        """Closes the response."""
        try:
            cast(httpx.SyncByteStream, response.stream).close()
        except (httpx.TransportError, OSError, RuntimeError):
            pass


def interrupt(stream: Any) -> None:
    """Wakes a reader of a connection in another thread, which closing the socket alone does not."""
    connection = None if stream is None else stream.get_extra_info("socket")
    if isinstance(connection, socket.socket):
        try:
            # The socket below TLS, because the object of the TLS session is in use by the reader.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)
        except OSError:
            pass


class _Connection(ClientConnection):
    def __init__(self, transport: socket.socket, protocol: ClientProtocol, **settings: Any) -> None:
        shared = SharedTls(transport) if isinstance(transport, ssl.SSLSocket) else transport
        super().__init__(cast(socket.socket, shared), protocol, **settings)


class Socket:
    """A websocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    @staticmethod
    def open(
        url: str, headers: Mapping[str, str], tls: Optional[ssl.SSLContext], agent: str, timeout: float
    ) -> "Socket":
        """Connects. Fails with OSError, TimeoutError or a websockets exception."""
        return Socket(
            connect(
                url,
                additional_headers=headers,
                ssl=tls,
                user_agent_header=agent,
                open_timeout=timeout,
                close_timeout=1,
                ping_interval=15,
                ping_timeout=15,
                max_size=LARGEST_MESSAGE,
                compression=None,
                proxy=None,
                logger=SOCKET_LOG,
                create_connection=_Connection,
            )
        )

    def send(self, data: Union[str, bytes]) -> None:
        """Sends a message."""
        self._connection.send(data)

    def receive(self) -> Union[str, bytes]:
        """The next message. Fails with ConnectionClosed at the end."""
        return self._connection.recv()

    def close(self) -> None:
        """Closes the connection, which ends its thread."""
        self._connection.close()


class Defaults(Generic[T]):
    """One object for the process."""

    def __init__(self) -> None:
        self._value: Optional[T] = None
        self._lock = threading.Lock()

    def get(self) -> Optional[T]:
        """The object."""
        return self._value

    def put(self, value: T) -> T:
        """Sets the object, unless another thread was faster."""
        with self._lock:
            if self._value is None:
                self._value = value
            return self._value


__all__ = [
    "Abandoning",
    "CANCELLED",
    "Content",
    "Defaults",
    "InvalidStatus",
    "Iterated",
    "KILLED_ON_CANCEL",
    "TIMEOUTS",
    "Socket",
    "begun",
    "chunks_of",
    "interrupt",
    "opening",
    "sleep",
    "store",
]
