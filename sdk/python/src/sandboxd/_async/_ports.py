"""Exposed ports of a sandbox, and tokens for private ports."""

from __future__ import annotations

from typing import List, Literal, Optional

from .. import models
from .._bodies import check_integer
from .._request import given, key_headers
from .._retry import Safety
from .._units import Duration, milliseconds
from ._context import AsyncSandboxContext
from ._payload import json_payload
from ._transport import Call


class AsyncPorts:
    """The ports of a sandbox."""

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
        """
        check_integer("port", port)
        body = given(port=port, visibility=visibility, autoResume=auto_resume)
        headers = key_headers(idempotency_key)
        call = Call("POST", self._context.path("/ports"), Safety.REPEATABLE, json_payload(body), headers)
        exposed = await self._context.json(call, models.Port.from_json)
        visible, resumes = str(exposed.visibility), exposed.auto_resume
        self._context.record("port.exposed", port=exposed.port, visibility=visible, autoResume=resumes)
        return exposed

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
