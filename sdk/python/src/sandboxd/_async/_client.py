"""The client: a service URL with an API key."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Callable, Dict, Optional, Type, TypeVar, Union

import httpx

from .. import models
from .._request import Duration, seconds
from .._retry import Safety
from .._settings import TIMEOUT, resolve
from ._events import AsyncEvents
from ._sandboxes import AsyncImages, AsyncSandboxes
from ._snapshots import AsyncSnapshots
from ._templates import AsyncTemplates
from ._transport import AsyncTransport, Call

T = TypeVar("T")


class AsyncSandboxd:
    """
    A client of the service. Without arguments, its settings come from the environment or from the local daemon.

    - `url`: default `SANDBOXD_URL`, or the local daemon. `api_key`: default `SANDBOXD_API_KEY`, or the key of the local daemon.
    - `certificate`: the certificate to trust, as PEM text or the path of a PEM file. Default: `SANDBOXD_CERTIFICATE`.
    - `fingerprint`: the SHA-256 fingerprint of the only certificate to trust.
    - `system_certificates`: trusts the certificate authorities of this machine, also for a local service.
    - `timeout`: how long a response may take, for commands in addition to the command's own timeout.
    - `retries`: the number of retries where they are safe. `max_retry_wait`: the longest `Retry-After` to wait for.
    - `http`: an httpx transport that sends the requests, for example one with a proxy.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        api_key: Optional[str] = None,
        *,
        certificate: Optional[Union[str, "os.PathLike[str]"]] = None,
        fingerprint: Optional[str] = None,
        system_certificates: bool = False,
        data_dir: Optional[str] = None,
        timeout: Duration = TIMEOUT,
        retries: int = 2,
        max_retry_wait: Duration = 10.0,
        http: Optional[httpx.AsyncBaseTransport] = None,
    ) -> None:
        settings = resolve(
            url=url,
            api_key=api_key,
            certificate=certificate,
            fingerprint=fingerprint,
            system_certificates=system_certificates,
            data_dir=data_dir,
            timeout=seconds(timeout),
            retries=retries,
            max_retry_wait=seconds(max_retry_wait),
        )
        self._transport = AsyncTransport(settings, http)
        self.sandboxes = AsyncSandboxes(self._transport)
        self.images = AsyncImages(self._transport)
        self.snapshots = AsyncSnapshots(self._transport)
        self.templates = AsyncTemplates(self._transport)
        self.events = AsyncEvents(self._transport)

    @property
    def url(self) -> str:
        """The URL of the service."""
        return self._transport.settings.service_url.url("")

    async def info(self) -> models.Info:
        """Returns the version, the isolation backends and the limits of the service."""
        return await self._get("/v1/info", models.Info.from_json)

    async def usage(self) -> models.Usage:
        """Returns what the account uses, and what the operator allows it."""
        return await self._get("/v1/usage", models.Usage.from_json)

    async def health(self) -> models.Health:
        """Returns the health of the service."""
        return await self._get("/v1/health", models.Health.from_json)

    async def openapi(self) -> Dict[str, Any]:
        """Returns the OpenAPI document of the service."""
        return await self._get("/v1/openapi.json", lambda document: dict(document))

    async def close(self) -> None:
        """Closes the connections. With asyncio, first waits for the clean-up of cancelled creates, at most 30 seconds."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncSandboxd:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.close()

    async def _get(self, path: str, parse: Callable[[Any], T]) -> T:
        return await self._transport.json(Call("GET", path, Safety.REPEATABLE), parse)
