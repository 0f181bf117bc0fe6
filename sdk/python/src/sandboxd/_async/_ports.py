"""Exposed ports of a sandbox, and tokens for private ports."""

from __future__ import annotations

from functools import partial
from typing import List, Literal, Optional

from httpx import AsyncClient

from .. import models
from .._bodies import check_integer
from .._names import OtherNames
from .._request import given, key_headers
from .._retry import Safety
from .._units import Duration, milliseconds, seconds
from . import _platform
from ._context import AsyncSandboxContext
from ._payload import json_payload
from ._transport import Call


class AsyncPorts(OtherNames):
    """The ports of a sandbox: `expose` gives a port a URL, and `client` returns an HTTP client for it."""

    def __init__(self, context: AsyncSandboxContext) -> None:
        self._context = context

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._context.id}>"

    async def expose(
        self,
        port: int,
        *,
        visibility: Optional[Literal["private", "public"]] = None,
        auto_resume: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
    ) -> models.Port:
        """
        Gives a port of the sandbox a URL, and returns it.

        - `visibility`: `private` (the default), with a key of the account or a token; or `public`, for anyone who knows the URL.
        - `auto_resume`: with False, requests through the port do not resume a paused sandbox.
        - `idempotency_key`: a request with the same key within 24 hours, from any process, returns the same result.

        Python often does not resolve the name in the URL ("Name or service not known"): `client` returns an HTTP client that needs
        no name.
        """
        check_integer("port", port)
        body = given(port=port, visibility=visibility, autoResume=auto_resume)
        headers = key_headers(idempotency_key)
        call = Call("POST", self._context.path("/ports"), Safety.REPEATABLE, json_payload(body), headers)
        exposed = await self._context.json(call, models.Port.from_json)
        visible, resumes = str(exposed.visibility), exposed.auto_resume
        self._context.record("port.exposed", port=exposed.port, visibility=visible, autoResume=resumes)
        return exposed

    def client(self, port: int, *, timeout: Optional[Duration] = None) -> _platform.Opening[AsyncClient]:
        """
        Returns an httpx client for a program in the sandbox. Its base URL is that of the port, which is exposed as `private` unless
        it is exposed already. The client connects to the address of the service, trusts its certificate, and sends and renews the
        token of a private port.

            with sandbox.ports.client(8000) as http:
                print(http.get("/").text)

        - `timeout`: how long the program may take for a response. Default: the `timeout` of the client of the service.

        While no program listens on the port, the response is 502. The client ends with that of the service. Websockets need the URL
        and a `token`.
        """
        check_integer("port", port)
        return _platform.opening(self._client(port, timeout))

    async def _client(self, port: int, timeout: Optional[Duration]) -> AsyncClient:
        exposed = next((each for each in await self.list() if each.port == port), None) or await self.expose(port)
        transport = self._context.transport
        limit = transport.settings.timeout if timeout is None else seconds(timeout)
        new_token = None if exposed.visibility == "public" else partial(self.token, port)
        # Its transport decides what is trusted and where requests go, not the variables of the environment.
        return AsyncClient(
            base_url=exposed.url, transport=transport.for_port(exposed.url, new_token), timeout=limit, trust_env=False
        )

    async def list(self) -> List[models.Port]:
        """Lists the exposed ports."""
        call = Call("GET", self._context.path("/ports"), Safety.REPEATABLE)
        return list((await self._context.json(call, models.PortList.from_json)).data)

    async def close(self, port: int) -> models.PortClosed:
        """Closes a port. Its tokens become invalid."""
        call = Call("DELETE", self._context.path(f"/ports/{port:d}"), Safety.AFTER_ANSWER)
        closed = await self._context.json(call, models.PortClosed.from_json)
        self._context.record("port.closed", port=port, reason="request")
        return closed

    async def token(self, port: int, *, expires_in: Optional[Duration] = None) -> models.PortToken:
        """Creates a token for a private port. It expires after `expires_in`, by default an hour."""
        payload = json_payload(given(expiresInMs=milliseconds(expires_in, "expires_in")))
        # Tokens are not stored, so creating another is harmless.
        call = Call("POST", self._context.path(f"/ports/{port:d}/token"), Safety.REPEATABLE, payload)
        return await self._context.json(call, models.PortToken.from_json)
