"""The sandboxes and images of a service."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from .. import models
from .._lifecycle import Handler
from .._request import LARGEST_PAGE, Duration, QueryValue, query_string
from .._retry import Safety
from . import _platform
from ._context import Recorder
from ._paging import AsyncPagedList
from ._sandbox import AsyncSandbox, create_body, create_sandbox, sandbox_handle
from ._transport import AsyncTransport, Call


class AsyncSandboxes:
    """The sandboxes of the account."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def create(
        self,
        image: str,
        *,
        cpu: Optional[int] = None,
        memory_mb: Optional[int] = None,
        disk_mb: Optional[int] = None,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[str] = None,
        timeout: Optional[Duration] = None,
        on_timeout: Optional[models.OnTimeout] = None,
        auto_resume: Optional[bool] = None,
        idle_timeout: Optional[Duration] = None,
        metadata: Optional[Mapping[str, str]] = None,
        egress: Optional[Mapping[str, Any]] = None,
        ingress: Optional[Mapping[str, Any]] = None,
        isolation: Optional[str] = None,
        cold: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
        wait: bool = True,
        run: Optional[Recorder] = None,
        on: Optional[Mapping[str, Handler]] = None,
    ) -> _platform.Opening[AsyncSandbox]:
        """
        Creates a sandbox. `image` is the name of an image or a template, or the id of a snapshot or a template.

        - `cpu`: 2, 4 or 8 vCPUs. `env`: variables of all commands. `workdir`: their default directory.
        - `timeout`: the running time, not counting pauses, at whose end `on_timeout` happens: `terminate` (default) or `pause`.
        - `auto_resume`: with False, commands, files and ports do not resume the sandbox while it is paused.
        - `idle_timeout`: pauses the sandbox after this time without activity; 0 disables it.
        - `metadata`: tags, by which lists can be filtered.
        - `egress`: the policy for outgoing connections, such as `{"default": "deny", "allow": ["example.com"]}`.
        - `ingress`: the policy for exposed ports, such as `{"allowPorts": [8080]}`.
        - `isolation`: `container`, `gvisor`, or `auto` (default) for the operator's choice.
        - `cold`: starts without the processes of the snapshot.
        - `idempotency_key`: a request with the same key within 24 hours, from any process, returns the same sandbox.
        - `wait`: with False the call fails at once if the service has no capacity or the image is still being pulled.
        - `run`: records the events of the sandbox in this run. `on`: handlers of lifecycle events, including `started`.

        Cancelling the asyncio task, or interrupting a blocking call with Ctrl-C, terminates the sandbox, unless the caller gave
        an `idempotency_key`.
        """
        body = create_body(
            image,
            cpu=cpu,
            memory_mb=memory_mb,
            disk_mb=disk_mb,
            env=env,
            workdir=workdir,
            timeout=timeout,
            on_timeout=on_timeout,
            auto_resume=auto_resume,
            idle_timeout=idle_timeout,
            metadata=metadata,
            egress=egress,
            ingress=ingress,
            isolation=isolation,
            cold=cold,
        )
        return _platform.opening(create_sandbox(self._transport, body, idempotency_key, wait, run, on))

    async def get(self, sandbox_id: str) -> AsyncSandbox:
        """Returns a sandbox with its current state."""
        sandbox = self.connect(sandbox_id)
        await sandbox.refresh()
        return sandbox

    def connect(self, sandbox_id: str) -> AsyncSandbox:
        """An object for a sandbox. Sends no request, so the sandbox need not exist."""
        return sandbox_handle(self._transport, sandbox_id)

    def list(
        self,
        *,
        state: Optional[str] = None,
        image: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        page_size: int = LARGEST_PAGE,
    ) -> AsyncPagedList[models.SandboxItem]:
        """Lists sandboxes, newest first. `metadata` are tags that a sandbox must have, all of them."""
        tags = {f"metadata.{name}": value for name, value in (metadata or {}).items()}

        async def fetch(offset: int) -> models.SandboxList:
            query: Dict[str, QueryValue] = {"state": state, "image": image, "limit": page_size, "offset": offset}
            call = Call("GET", "/v1/sandboxes" + query_string({**query, **tags}), Safety.REPEATABLE)
            return await self._transport.json(call, models.SandboxList.from_json)

        return AsyncPagedList(fetch, lambda item: item.id)


class AsyncImages:
    """The images of the service."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self) -> AsyncPagedList[models.Image]:
        """Lists the images, with the progress of pulls."""

        async def fetch(offset: int) -> models.ImageList:
            return await self._page({"limit": LARGEST_PAGE, "offset": offset})

        return AsyncPagedList(fetch, lambda image: image.name)

    async def get(self, name: str) -> Optional[models.Image]:
        """Returns an image, or None if it is neither stored nor being pulled."""
        page = await self._page({"name": name})
        return next((image for image in page.data if image.name == name), None)

    async def _page(self, query: Dict[str, QueryValue]) -> models.ImageList:
        call = Call("GET", "/v1/images" + query_string(query), Safety.REPEATABLE)
        return await self._transport.json(call, models.ImageList.from_json)
