"""What differs between the two flavours beyond `async` and `await`: this module exists twice and is not generated."""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, AsyncIterable, AsyncIterator, BinaryIO, Coroutine, Generator, Generic, Iterable
from typing import Mapping, Optional, TypeVar, Union, cast
from weakref import WeakKeyDictionary

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from .._partial_file import PartialFile
from .._secrets import SOCKET_LOG

T = TypeVar("T")
# Different classes before Python 3.11.
TIMEOUTS = (TimeoutError, asyncio.TimeoutError)
CANCELLED = asyncio.CancelledError
"""What a cancelled call raises."""
KILLED_ON_CANCEL = True
"""Whether `execute` sends no idempotency key by default, so that a cancelled task ends the command."""
LARGEST_MESSAGE = 64 << 20
Content = Union[str, bytes, bytearray, memoryview, "os.PathLike[str]", BinaryIO, Iterable[bytes], AsyncIterable[bytes]]
"""Content to send: text, bytes, the path of a local file, an open binary file, or an iterator of bytes."""
_CHUNK = 256 << 10


async def sleep(seconds: float) -> None:
    """Waits."""
    await asyncio.sleep(seconds)


class Opening(Coroutine[Any, Any, T]):
    """An object that is being created: await it, pass it to `asyncio.create_task`, or use it as an async context manager."""

    def __init__(self, creating: Coroutine[Any, Any, T]) -> None:
        self._creating = creating
        self._created: Optional[T] = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: await it, or use it in 'async with'>"

    if not TYPE_CHECKING:
        # Type checkers refuse all of these by themselves.

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"it has no attribute {name!r} before it is created: await it, or use it in 'async with'")

        def __enter__(self) -> Any:
            raise TypeError("it is created by asyncio: use it in 'async with' instead of 'with', or await it")

        def __exit__(self, *error: Any) -> None:
            """Python looks for it before it enters a block."""

    def __await__(self) -> Generator[Any, None, T]:
        return self._creating.__await__()

    def send(self, value: Any, /) -> Any:
        """Continues the creation, for a task."""
        return self._creating.send(value)

    def throw(self, typ: Any, val: Any = None, tb: Any = None, /) -> Any:
        """Raises an error in the creation, such as the cancellation of a task."""
        return self._creating.throw(typ) if val is None and tb is None else self._creating.throw(typ, val, tb)

    def close(self) -> None:
        """Ends a creation that has not begun."""
        self._creating.close()

    async def __aenter__(self) -> T:
        self._created = await self._creating
        entered: T = await cast(Any, self._created).__aenter__()
        return entered

    async def __aexit__(self, *error: Any) -> None:
        await cast(Any, self._created).__aexit__(*error)


class Iterated:
    """The base of what is iterated: a loop without `async` says what is missing."""

    if not TYPE_CHECKING:

        def __iter__(self) -> Any:
            raise TypeError(f"{type(self).__name__} is iterated with 'async for' instead of 'for'")


def opening(creating: Coroutine[Any, Any, T]) -> Opening[T]:
    """The object, which the caller awaits or enters."""
    return Opening(creating)


def begun(stream: T) -> T:
    """The stream itself: only its caller can await that it connects."""
    return stream


async def chunks_of(content: Any) -> AsyncIterator[bytes]:
    """The chunks of a path, a file or an iterator. Files are read in another thread, because a disk may be slow."""
    if isinstance(content, AsyncIterable):
        async for chunk in cast("AsyncIterable[bytes]", content):
            yield chunk
    elif isinstance(content, os.PathLike):
        file = await asyncio.to_thread(open, cast("os.PathLike[str]", content), "rb")
        try:
            while chunk := await asyncio.to_thread(file.read, _CHUNK):
                yield chunk
        finally:
            file.close()
    elif hasattr(content, "read"):
        while chunk := await asyncio.to_thread(content.read, _CHUNK):
            yield chunk
    else:
        # Iterators that are generators run here, so that they see the context of the caller.
        for chunk in cast("Iterable[bytes]", content):
            yield chunk


async def store(chunks: AsyncIterable[bytes], target: Path) -> None:
    """Writes a file, in another thread, because a disk may be slow. Opens it in this one: a cancelled task would not remove it."""
    with PartialFile(target) as file:
        async for chunk in chunks:
            await asyncio.to_thread(file.write, chunk)


class Abandoning:
    """Closes a response whose object is collected while it is still open."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def close(self, response: httpx.Response) -> None:
        """Closes the response, in the loop of its connection."""

        def begin() -> None:
            _CLOSING.add(closing := self._loop.create_task(_close_quietly(response)))
            closing.add_done_callback(_CLOSING.discard)

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(begin)


async def _close_quietly(response: httpx.Response) -> None:
    try:
        await cast(httpx.AsyncByteStream, response.stream).aclose()
    except (httpx.TransportError, OSError, RuntimeError):
        pass


_CLOSING: "set[asyncio.Task[None]]" = set()
"""The loop holds only weak references to its tasks."""


def interrupt(stream: object) -> None:
    """Wakes a reader of a connection. Not needed here: closing it has this effect."""


class AsyncSocket:
    """A websocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    @staticmethod
    async def open(
        url: str, headers: Mapping[str, str], tls: Optional[ssl.SSLContext], agent: str, timeout: float
    ) -> "AsyncSocket":
        """Connects. Fails with OSError, TimeoutError or a websockets exception."""
        return AsyncSocket(
            await connect(
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
                process_exception=_is_final,
            )
        )

    async def send(self, data: Union[str, bytes]) -> None:
        """Sends a message."""
        await self._connection.send(data)

    async def receive(self) -> Union[str, bytes]:
        """The next message. Fails with ConnectionClosed at the end."""
        return await self._connection.recv()

    async def close(self) -> None:
        """Closes the connection."""
        await self._connection.close()


def _is_final(error: Exception) -> Optional[Exception]:
    return error


class Defaults(Generic[T]):
    """One object for each event loop, because connections belong to a loop."""

    def __init__(self) -> None:
        self._all: "WeakKeyDictionary[asyncio.AbstractEventLoop, T]" = WeakKeyDictionary()

    def get(self) -> Optional[T]:
        """The object of the running loop."""
        return self._all.get(asyncio.get_running_loop())

    def put(self, value: T) -> T:
        """Sets the object of the running loop."""
        self._all[asyncio.get_running_loop()] = value
        return value


__all__ = [
    "Abandoning",
    "AsyncSocket",
    "CANCELLED",
    "Content",
    "Defaults",
    "InvalidStatus",
    "Iterated",
    "KILLED_ON_CANCEL",
    "TIMEOUTS",
    "Opening",
    "begun",
    "chunks_of",
    "interrupt",
    "opening",
    "sleep",
    "store",
]
