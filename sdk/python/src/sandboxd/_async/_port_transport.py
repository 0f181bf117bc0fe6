"""
The transport of an HTTP client for one port of a sandbox. It sends requests to the address of the service, because Python does not
resolve names below `localhost` on most systems, and the name of the port as `Host`. For a private port it adds a token, and renews it.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any, Dict, Optional, Protocol

from httpx import URL, AsyncBaseTransport, Request, Response

from .. import models
from .._secrets import HasKey, Secret
from .._settings import ServiceUrl

RENEWED_BEFORE = 60.0
"""Seconds before the end of a token at which it is renewed."""


class NewToken(Protocol):
    """Creates a token for the port."""

    async def __call__(self) -> models.PortToken:
        """Creates it."""
        ...


class Connections(Protocol):
    """The client that made the transport, as far as its connections are concerned."""

    def check_open(self) -> None:
        """Fails if the client is closed."""
        ...

    def extensions(self) -> Dict[str, Any]:
        """With these of a request the client knows its connection, which it closes with the others."""
        ...


class AsyncPortTransport(HasKey, AsyncBaseTransport):
    """Sends the requests for a port through the connections of the client that made it."""

    def __init__(
        self,
        http: AsyncBaseTransport,
        connections: Connections,
        service_url: ServiceUrl,
        port_url: str,
        new_token: Optional[NewToken],
    ) -> None:
        self._http = http
        self._connections = connections
        self._service_url = service_url
        self._port_url = URL(port_url)
        self._new_token = new_token
        """Creates a token; None if the port is public."""
        self._token: Optional[Secret] = None
        self._renew_at = 0.0

    async def handle_async_request(self, request: Request) -> Response:
        """Sends a request. Those for other hosts or without TLS, as after a redirect, get neither the token nor the address."""
        self._connections.check_open()
        request.extensions = {**self._connections.extensions(), **request.extensions}
        if (request.url.scheme, request.url.netloc) != (self._port_url.scheme, self._port_url.netloc):
            return await self._http.handle_async_request(request)
        headers = request.headers.copy()
        if self._new_token is not None:
            headers["x-sandbox-token"] = await self._current(self._new_token)
        sent = Request(
            request.method, self._address(request.url), headers=headers, stream=request.stream, extensions=request.extensions
        )
        response = await self._http.handle_async_request(sent)
        if response.status_code == 401:
            # The port was exposed again, which ends its tokens.
            self._token = None
        return response

    def _address(self, url: URL) -> URL:
        """Where a request goes. The name of the port stays in the header `Host`."""
        service = self._service_url
        if service.is_local or url.host.endswith(".localhost"):
            return url.copy_with(scheme=service.scheme, host=service.host, port=service.port)
        return url

    async def _current(self, new_token: NewToken) -> Secret:
        # Read once: another thread may drop it.
        token = self._token
        if token is None or time.time() > self._renew_at:
            created = await new_token()
            end = datetime.fromisoformat(created.expires_at.replace("Z", "+00:00"))
            token = Secret(created.token)
            self._token, self._renew_at = token, end.timestamp() - RENEWED_BEFORE
        return token

    async def aclose(self) -> None:
        """Does nothing: the connections belong to the client of the service."""
