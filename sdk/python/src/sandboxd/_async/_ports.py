"""Exposed ports of a sandbox, and tokens for private ports."""

from __future__ import annotations

from typing import List, Optional

from .. import models
from .._request import Duration, given, key_headers, milliseconds
from .._retry import Safety
from ._context import AsyncSandboxContext
from ._payload import json_payload
from ._transport import Call


class AsyncPorts:
    """The ports of a sandbox."""

    def __init__(self, context: AsyncSandboxContext) -> None:
        self._context = context

    async def expose(
        self,
        port: int,
        *,
        visibility: Optional[str] = None,
        auto_resume: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
    ) -> models.Port:
        """
        Gives a port a URL. `visibility` is `private` (the default: with a key of the account or a token) or `public`. With
        `auto_resume=False`, requests through the port do not resume a paused sandbox.
        """
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
        """Creates a token for a private port. Default lifetime: an hour."""
        payload = json_payload(given(expiresInMs=milliseconds(expires_in)))
        # Tokens are not stored, so creating another is harmless.
        call = Call("POST", self._context.path(f"/ports/{port:d}/token"), Safety.REPEATABLE, payload)
        return await self._context.json(call, models.PortToken.from_json)
