"""The network policy of a sandbox."""

from __future__ import annotations

from typing import Any, Dict, Literal, Optional, Sequence

from .. import models
from .._bodies import ports, texts
from .._names import other_keywords
from .._request import given, key_headers
from .._retry import Safety
from ._context import AsyncSandboxContext
from ._payload import json_payload
from ._transport import Call


class AsyncNetwork:
    """The network of a sandbox."""

    def __init__(self, context: AsyncSandboxContext) -> None:
        self._context = context

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._context.id}>"

    async def get(self) -> models.Network:
        """Returns the policy and the traffic."""
        call = Call("GET", self._context.path("/network"), Safety.REPEATABLE)
        return await self._context.json(call, models.Network.from_json)

    @other_keywords
    async def update(
        self,
        *,
        default: Optional[Literal["allow", "deny"]] = None,
        allow: Optional[Sequence[str]] = None,
        allow_networks: Optional[Sequence[str]] = None,
        deny_networks: Optional[Sequence[str]] = None,
        allow_ports: Optional[Sequence[int]] = None,
        idempotency_key: Optional[str] = None,
    ) -> models.Sandbox:
        """
        Changes the policy, and returns the sandbox. Absent parts do not change. A list replaces what was there, unlike
        `sbx network allow`, which adds to it: to add a name, pass the names of `get` with it.

        - `default`: which destinations are allowed: `allow` all public ones, `deny` only the domains in `allow`.
          Default: `deny` with a list `allow`, as in a create; otherwise it does not change.
        - `allow`: allowed domains, such as `example.com` and `*.example.com`; an empty list allows none. With `default="allow"` they
          have no effect.
        - `allow_networks`: IPv4 addresses and networks that are allowed besides.
        - `deny_networks`: IPv4 addresses and networks that are denied although the default allows them.
        - `allow_ports`: the ports that may be exposed.
        - `idempotency_key`: a request with the same key within 24 hours, from any process, returns the same result.
        """
        if default is None and allow is not None:
            default = "deny"
        lists = {"allow": texts("allow", allow), "allowNetworks": texts("allow_networks", allow_networks)}
        lists["denyNetworks"] = texts("deny_networks", deny_networks)
        egress = given(default=default, **lists)
        body: Dict[str, Any] = {"egress": egress} if egress else {}
        if allow_ports is not None:
            body["ingress"] = {"allowPorts": ports("allow_ports", allow_ports)}
        headers = key_headers(idempotency_key)
        call = Call("PATCH", self._context.path("/network"), Safety.REPEATABLE, json_payload(body), headers)
        view = self._context.view = await self._context.json(call, models.Sandbox.from_json)
        return view
