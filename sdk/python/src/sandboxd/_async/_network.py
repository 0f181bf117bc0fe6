"""The network policy of a sandbox."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

from .. import models
from .._request import given, key_headers
from .._retry import Safety
from ._context import AsyncSandboxContext
from ._payload import json_payload
from ._transport import Call


class AsyncNetwork:
    """The network of a sandbox."""

    def __init__(self, context: AsyncSandboxContext) -> None:
        self._context = context

    async def get(self) -> models.Network:
        """Returns the policy and the traffic."""
        call = Call("GET", self._context.path("/network"), Safety.REPEATABLE)
        return await self._context.json(call, models.Network.from_json)

    async def update(
        self,
        *,
        default: Optional[str] = None,
        allow: Optional[Sequence[str]] = None,
        allow_networks: Optional[Sequence[str]] = None,
        deny_networks: Optional[Sequence[str]] = None,
        allow_ports: Optional[Sequence[int]] = None,
        idempotency_key: Optional[str] = None,
    ) -> models.Sandbox:
        """
        Changes the policy, and returns the sandbox. Absent parts do not change. `default` decides which destinations are allowed:
        `allow` all public ones, `deny` only the domains in `allow`, such as `example.com` and `*.example.com`. IPv4 addresses
        and networks in `allow_networks` are allowed besides; those in `deny_networks` are denied although the default allows
        them. `allow_ports` are the ports that may be exposed.
        """
        lists = {"allow": allow, "allowNetworks": allow_networks, "denyNetworks": deny_networks}
        egress = given(default=default, **{name: list(entries) for name, entries in lists.items() if entries is not None})
        body: Dict[str, Any] = {"egress": egress} if egress else {}
        if allow_ports is not None:
            body["ingress"] = {"allowPorts": list(allow_ports)}
        headers = key_headers(idempotency_key)
        call = Call("PATCH", self._context.path("/network"), Safety.REPEATABLE, json_payload(body), headers)
        return await self._context.json(call, models.Sandbox.from_json)
