"""The transport retries as the retry rules say."""

import asyncio

import httpx
import pytest

from sandboxd import _settings
from sandboxd._async._transport import AsyncTransport, Call
from sandboxd._errors import NetworkError
from sandboxd._retry import Safety


def attempts(safety: Safety, failure: Exception) -> int:
    """The number of requests until a call whose attempts all fail is given up."""
    seen = []

    def respond(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        raise failure

    async def send() -> None:
        settings = _settings.resolve(url="http://127.0.0.1:9", api_key="any", environment={})
        transport = AsyncTransport(settings, httpx.MockTransport(respond))
        with pytest.raises(NetworkError):
            await transport.json(Call("POST", "/v1/sandboxes", safety), dict)
        await transport.close()

    asyncio.run(send())
    return len(seen)


def test_lost_responses_are_retried_only_if_that_is_safe() -> None:
    assert attempts(Safety.REPEATABLE, httpx.ReadError("cut")) == 3
    assert attempts(Safety.ONLY_UNSTARTED, httpx.ReadError("cut")) == 1
    assert attempts(Safety.ONLY_UNSTARTED, httpx.ConnectError("refused")) == 3
