"""Sends calls over HTTP, with retries where they are safe."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Tuple

import httpx

from .._errors import ConfigurationError, NetworkError, SandboxdError, UnknownError, of_response
from .._retry import Answered, Failed, Fault, Safety, may_repeat, wait
from .._settings import Settings


@dataclass(frozen=True)
class Call:
    """A request, for all attempts."""

    method: str
    path: str
    safety: Safety
    body: Optional[Dict[str, Any]] = None
    headers: Dict[str, str] = field(default_factory=dict)
    timeout: Optional[float] = None
    """Seconds for an attempt, instead of those of the client."""
    is_impatient: bool = False
    """No retry on RESOURCE_EXHAUSTED."""


class AsyncTransport:
    """The connections of a client."""

    def __init__(self, settings: Settings, http: Optional[httpx.AsyncBaseTransport] = None) -> None:
        if settings.fingerprint is not None:
            raise ConfigurationError("this client cannot pin a fingerprint; pass the certificate instead")
        self._settings = settings
        headers = {"accept": "application/json", "authorization": f"Bearer {settings.api_key}"}
        self._http = httpx.AsyncClient(verify=settings.verify, headers=headers, timeout=None, transport=http)

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def json(self, call: Call) -> Any:
        """Sends a call with retries and parses the response as JSON."""
        retries = 0
        while True:
            response, fault, error = await self._attempt(call)
            if error is None or fault is None:
                break
            is_for_caller = call.is_impatient and error.code == "RESOURCE_EXHAUSTED"
            pause = None
            if may_repeat(call.safety, fault) and not is_for_caller:
                pause = wait(self._settings.policy, retries + 1, error.retry_after, random.random())
            if pause is None:
                raise error
            await asyncio.sleep(pause)
            retries += 1
        try:
            return json.loads(response.content) if response is not None else None
        except ValueError as cause:
            status = response.status_code if response is not None else None
            raise UnknownError(f"the response cannot be parsed: {cause}", status=status) from cause

    async def _attempt(
        self, call: Call
    ) -> Tuple[Optional[httpx.Response], Optional[Fault], Optional[SandboxdError]]:
        limit = self._settings.timeout if call.timeout is None else call.timeout
        url = self._settings.service_url.url(call.path)
        request = self._http.request(call.method, url, json=call.body, headers=call.headers)
        try:
            response = await asyncio.wait_for(request, limit)
        except asyncio.TimeoutError:
            return None, Failed.LOST, NetworkError(f"no response within {limit * 1000:.0f} ms")
        except httpx.TransportError as cause:
            fault = Failed.NOT_SENT if isinstance(cause, httpx.ConnectError) else Failed.LOST
            return None, fault, NetworkError(f"no response from {url}: {cause}")
        if response.is_success:
            return response, None, None
        error = of_response(response.status_code, response.content, response.headers)
        if error.details.get("commandStarted") is True:
            return None, Failed.KILLED, error
        return None, Answered(response.status_code, error.code), error
