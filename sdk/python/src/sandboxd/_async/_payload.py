"""Request bodies: bytes in memory, or a stream. A chunk is requested after the previous one was sent."""

from __future__ import annotations

import json
import os
from types import TracebackType
from typing import Any, AsyncIterator, Optional, Union

from .._pack import LocalDirectory
from ._background import pack
from ._platform import Content, chunks_of


class AsyncPayload:
    """A request body, for all attempts of a call."""

    def __init__(self, content: Union[Content, LocalDirectory], content_type: str) -> None:
        self.content_type = content_type
        self.error: Optional[Exception] = None
        """The error of the source of the body."""
        self.traceback: Optional[TracebackType] = None
        """Where it was raised, without the frames of the HTTP library."""
        self._content: Any = content.encode() if isinstance(content, str) else content
        self._is_opened = False

    @property
    def is_streamed(self) -> bool:
        """Whether sending may be limited by the source."""
        return not isinstance(self._content, (bytes, bytearray, memoryview))

    @property
    def can_be_sent(self) -> bool:
        """Whether another attempt can send it."""
        return not self._is_opened or not self.is_streamed or isinstance(self._content, (os.PathLike, LocalDirectory))

    def body(self) -> Union[bytes, AsyncIterator[bytes]]:
        """The body for one attempt."""
        return self._chunks() if self.is_streamed else bytes(self._content)

    async def _chunks(self) -> AsyncIterator[bytes]:
        # An attempt that does not connect does not consume the source.
        self._is_opened = True
        try:
            is_directory = isinstance(self._content, LocalDirectory)
            async for chunk in pack(self._content) if is_directory else chunks_of(self._content):
                # An empty chunk would end a chunked body.
                if chunk:
                    yield chunk
        except Exception as error:
            self.error, self.traceback = error, error.__traceback__
            raise


def json_payload(value: Any) -> AsyncPayload:
    """A JSON body."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return AsyncPayload(text.encode(), "application/json")
    except UnicodeEncodeError:
        # Lone surrogates cannot be encoded. Their escapes can, and the service names the field in its error.
        return AsyncPayload(json.dumps(value).encode(), "application/json")
