"""The client: a service URL with an API key."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Callable, Dict, Optional, Type, TypeVar, Union

import httpx

from .. import models
from .._names import OtherNames
from .._retry import MAX_RETRY_WAIT, Safety
from .._secrets import Secret
from .._settings import TIMEOUT, resolve
from .._units import Duration, seconds
from ._events import AsyncEvents
from ._sandboxes import AsyncImages, AsyncSandboxes
from ._snapshots import AsyncSnapshots
from ._templates import AsyncTemplates
from ._transport import AsyncTransport, Call

T = TypeVar("T")


class AsyncSandboxd(OtherNames):
    """
    A client of the service. Without arguments, its settings come from the environment or from the local daemon.

    - `url`: default `SANDBOXD_URL`, or the local daemon. `api_key`: default `SANDBOXD_API_KEY`, or the key of the local daemon.
    - `certificate`: the certificate to trust, as PEM text or the path of a PEM file. Default: `SANDBOXD_CERTIFICATE`.
    - `fingerprint`: the SHA-256 fingerprint of the only certificate to trust.
    - `system_certificates`: trusts the certificate authorities of this machine, also for a local service.
    - `data_dir`: the data directory of the local daemon. Default: `SANDBOXD_DATA_DIR`, or `/var/lib/sandboxd`.
    - `timeout`: how long a response may take, for commands in addition to the command's own timeout.
    - `retries`: the number of retries after failures, where they are safe.
    - `max_retry_wait`: how long a call waits in all while the service refuses it because of a limit. Calls wait as long as the service
      asks, in the order in which they were made, and log a warning that names the limit. With 0 they fail at once.
    - `http`: an httpx transport that sends the requests, for example one with a proxy.

    Durations are seconds as a number, a text such as `"90s"` or `"5m"`, in seconds without a unit, or a `timedelta`.

    Its parts are `sandboxes`, `images`, `snapshots`, `templates` and `events`.

        with Sandboxd() as client:
            for item in client.sandboxes.list():
                print(item.id)
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
        max_retry_wait: Duration = MAX_RETRY_WAIT,
        http: Optional[httpx.AsyncBaseTransport] = None,
    ) -> None:
        # Tracebacks with local variables do not show it.
        api_key = None if api_key is None else Secret(api_key)
        settings = resolve(
            url=url,
            api_key=api_key,
            certificate=certificate,
            fingerprint=fingerprint,
            system_certificates=system_certificates,
            data_dir=data_dir,
            timeout=seconds(timeout),
            retries=retries,
            max_retry_wait=seconds(max_retry_wait, "max_retry_wait"),
        )
        self._transport = AsyncTransport(settings, http)
        self._sandboxes = AsyncSandboxes(self._transport)
        self._images = AsyncImages(self._transport)
        self._snapshots = AsyncSnapshots(self._transport)
        self._templates = AsyncTemplates(self._transport)
        self._events = AsyncEvents(self._transport)

    def __repr__(self) -> str:
        # A traceback may show an object whose settings are wrong.
        url = repr(self.url) if "_transport" in vars(self) else ""
        return f"{type(self).__name__}({url})"

    @property
    def sandboxes(self) -> AsyncSandboxes:
        """The sandboxes of the account: creating, finding and listing them."""
        return self._sandboxes

    @property
    def images(self) -> AsyncImages:
        """The images of the service."""
        return self._images

    @property
    def snapshots(self) -> AsyncSnapshots:
        """The snapshots of the account."""
        return self._snapshots

    @property
    def templates(self) -> AsyncTemplates:
        """The templates of the account, and their builds."""
        return self._templates

    @property
    def events(self) -> AsyncEvents:
        """What has happened to the sandboxes of the account."""
        return self._events

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
        """
        Closes the connections. With asyncio, first waits for the clean-up of cancelled creates: at most 30 seconds, and longer if the
        service asks to wait for a rate limit. Later calls fail with `InvalidState`, except clean-ups: the end of a `with` block of a
        sandbox still terminates it, and a `Run` still uploads its events. A second `close` does nothing. Calls of other threads that
        wait for a response end at once with `InvalidState`, and those that wait for a limit when their wait ends. Terminals stay open.
        """
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
